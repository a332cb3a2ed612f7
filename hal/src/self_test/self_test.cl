// The self-test's operations in OpenCL C 1.2, one element (or one group of 64) per work-item.

__kernel void test_fma(__global const float *a, __global const float *b, __global const float *c,
                       __global float *out) {
    size_t i = get_global_id(0);
    out[i] = fma(a[i], b[i], c[i]);
}

__kernel void test_exp(__global const float *a, __global float *out) {
    size_t i = get_global_id(0);
    out[i] = exp(a[i]);
}

__kernel void test_divide_sqrt(__global const float *b, __global const float *c,
                               __global float *out) {
    size_t i = get_global_id(0);
    out[i] = sqrt(b[i]) / (1.0f + c[i] * c[i]);
}

__kernel void test_integer(__global const uint *x, __global const uint *y, __global uint *out) {
    size_t i = get_global_id(0);
    out[i] = x[i] * y[i] + ((x[i] >> 7) ^ y[i]);
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
test_group_sum(__global const float *n, __global float *out) {
    __local float part[64];
    uint lane = get_local_id(0);
    part[lane] = n[get_global_id(0)];
    for (uint stride = 32; stride > 0; stride /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < stride) {
            part[lane] += part[lane + stride];
        }
    }
    if (lane == 0) {
        out[get_group_id(0)] = part[0];
    }
}
