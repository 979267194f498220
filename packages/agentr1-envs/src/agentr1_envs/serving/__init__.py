"""An environment over a WebSocket: its sessions, the application that talks with clients, and what runs it."""
