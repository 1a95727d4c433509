#pragma once
/// What kernels must know about the compiler of a device. Besides TESSERA_FUNCTION
/// (core/rounding.hpp) nothing else asks which compiler it is.

#if defined(__CUDACC__)
/// Defined in sources that a device's compiler translates, in its pass for the host as well.
#define TESSERA_DEVICE_COMPILER
#endif

#if defined(__CUDA_ARCH__)
/// Defined while code for a device is generated.
#define TESSERA_DEVICE_CODE
/// Ten times the compute capability, where device code may use instructions of PTX. Code next to it
/// computes the same without them.
#define TESSERA_PTX __CUDA_ARCH__
#endif
