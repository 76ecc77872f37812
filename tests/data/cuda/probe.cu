// The smallest CUDA extension that can be wrong: p[i] = 3 * i + 1, computed by the GPU.
// Plain C interface, so that it needs no Python headers: loaded by ctypes in cuda_probe/__init__.py.
#include <cuda_runtime.h>

__global__ void triple(int *p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = 3 * i + 1;
}

extern "C" {

// Fills out[0..n) and returns the CUDA error number of the first call that failed, 0 for none.
int probe_run(int *out, int n) {
    int *p = nullptr;
    cudaError_t error = cudaMalloc(&p, n * sizeof(int));
    if (error != cudaSuccess) return error;
    triple<<<(n + 255) / 256, 256>>>(p, n);
    error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) error = cudaMemcpy(out, p, n * sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(p);
    return error;
}

const char *probe_name(int error) { return cudaGetErrorName(static_cast<cudaError_t>(error)); }

int probe_capability(void) {
    cudaDeviceProp device;
    return cudaGetDeviceProperties(&device, 0) == cudaSuccess ? device.major * 10 + device.minor : 0;
}
}
