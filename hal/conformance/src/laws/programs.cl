// Kernels of the laws about programs, in OpenCL C 1.2.

#ifndef CONSTANT
#define CONSTANT 1u
#endif

__kernel void add(__global const float *a, __global const float *b, __global float *out) {
    size_t i = get_global_id(0);
    out[i] = a[i] + b[i];
}

__kernel void twice_and_one(__global uint *values) {
    size_t i = get_global_id(0);
    values[i] = 2u * values[i] + 1u;
}

__kernel void constant_of_options(__global uint *out) { out[get_global_id(0)] = CONSTANT; }

__kernel void all_arguments(__global uint *out, uint u, int i, ulong l, float f,
                            __local uint *scratch) {
    uint lane = get_local_id(0);
    scratch[lane] = lane;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0) {
        uint sum = 0;
        for (uint at = 0; at < get_local_size(0); ++at) {
            sum += scratch[at];
        }
        out[0] = u;
        out[1] = as_uint(i);
        out[2] = (uint)l;
        out[3] = (uint)(l >> 32);
        out[4] = as_uint(f);
        out[5] = sum;
    }
}
