/* Shared by the kernels of products: y = left · right, of m × k and k × n, for each of several
   batches. Sizes except k are never 0. Generated are OPERANDS, the parameters of the tensors that
   are read; LEFT_LOAD(place, row) and RIGHT_LOAD(place, column), an element of TILE's type;
   LEFT_BATCH(z) and RIGHT_BATCH(z), where a batch begins; LEFT_VECTOR(to, at, from, side) and
   RIGHT_VECTOR(to, at, from, side), which load the LEFT_WIDTH or RIGHT_WIDTH elements from a place on
   to to[at] and after;
   and RESULT(sum, row, column), the element for a sum. An operand lies ALONG the sum where its
   neighbours in memory follow each other along k. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif

DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }

DEVICE void unpack4(float *to, float4 x) {
    to[0] = x.x;
    to[1] = x.y;
    to[2] = x.z;
    to[3] = x.w;
}

/* The place of the element at `depth` of row or column `side`, of `size` rows or columns. */
DEVICE u32 place(u32 along, u32 size, u32 k, u32 side, u32 depth) {
    return along ? side * k + depth : depth * size + side;
}
