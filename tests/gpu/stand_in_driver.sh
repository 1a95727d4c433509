#!/usr/bin/env bash
# Writes the source of a stand-in for libcuda.so.1: every function of the driver, which says that all went well. cuDNN loads all of them before it
# makes plans for a device that is only described, and hands its kernels to some.
#   tests/gpu/stand_in_driver.sh STUB SOURCE      STUB: the toolkit's lib/stubs/libcuda.so, for the names
set -euo pipefail
written='cuKernelGetFunction cuLibraryGetKernel cuLibraryLoadData cuModuleGetFunction cuModuleLoadData cuModuleLoadDataEx cuInit cuGetExportTable
  cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuCtxGetDevice cuCtxGetCurrent cuFuncGetAttribute cuKernelGetAttribute'
{
  cat <<'TEXT'
/* handles that are never followed */
int cuLibraryLoadData(void** library) { *library = (void*)1; return 0; }
int cuLibraryGetKernel(void** kernel) { *kernel = (void*)1; return 0; }
int cuKernelGetFunction(void** function) { *function = (void*)1; return 0; }
int cuModuleLoadData(void** module) { *module = (void*)1; return 0; }
int cuModuleLoadDataEx(void** module) { *module = (void*)1; return 0; }
int cuModuleGetFunction(void** function) { *function = (void*)1; return 0; }
int cuCtxGetCurrent(void** context) { *context = (void*)1; return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device) { *device = 0; return 0; }
int cuCtxGetDevice(int* device) { *device = 0; return 0; }
int cuFuncGetAttribute(int* value) { *value = 0; return 0; }
int cuKernelGetAttribute(int* value) { *value = 0; return 0; }
/* CUDA_ERROR_NO_DEVICE */
int cuInit(void) { return 100; }
int cuGetExportTable(void) { return 100; }
TEXT
  nm -D --defined-only "$1" | awk -v written="$written" '
    BEGIN { n = split(written, name, " +|\n *"); for (i = 1; i <= n; ++i) known[name[i]] = 1 }
    $3 ~ /^cu[A-Z]/ && !($3 in known) { print "int " $3 "(void) { return 0; }"; ++count }
    END { if (count < 100) { print "no driver interface in the stub" > "/dev/stderr"; exit 1 } }'
} >"$2"
