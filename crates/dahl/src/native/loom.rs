//! Model checks of the engine's protocols: every interleaving that loom finds.
