"""WebShop (Yao et al. 2022): buy what an instruction asks for in a simulated web shop; no Java, browser or server."""
