"""How many GPUs each layer gets at a constant global batch, and what fills the gaps."""
