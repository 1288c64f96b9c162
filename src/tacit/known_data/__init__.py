"""How own data is known again."""
