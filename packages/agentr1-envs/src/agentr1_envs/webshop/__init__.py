"""WebShop (Yao et al. 2022): buy what an instruction asks for in a simulated web shop. No Java, no browser, no server."""
