//! What the hardware allows.
