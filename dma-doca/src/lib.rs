//! NVIDIA BlueField DOCA DMA as an engine.
