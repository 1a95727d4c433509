#pragma once
/// Marks a function that device code may call too.
#if defined(__CUDACC__)
#define TESSERA_FUNCTION __host__ __device__
#else
#define TESSERA_FUNCTION
#endif
