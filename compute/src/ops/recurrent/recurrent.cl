/* The parts of recurrent layers that are no products, one element of a hidden state a work-item, for
   all directions at once. `projected` is what the inputs give for the gates, [direction][row][gate]
   [element]; `product` and `inner` are what the hidden state gives, [direction][sequence][gate]
   [element]. LOAD(p, i) loads and STORE(value, p, i) stores an element of the layer's type; states
   are float between the steps. F(x), G(x) and H(x) are the activations of `direction`. */

DEVICE float clipped(float x) { return LIMIT > 0.0f ? fmin(fmax(x, -LIMIT), LIMIT) : x; }

/* Where element j of a sequence is in a state between the steps, and in an input or output. */
#define OWN ((direction * batch + sequence) * hidden + j)
#if BATCH_FIRST
#define STATE ((sequence * directions + direction) * hidden + j)
#define ROW(t) (sequence * steps + (t))
#define OUTPUT(t) (((sequence * steps + (t)) * directions + direction) * hidden + j)
#else
#define STATE OWN
#define ROW(t) ((t) * batch + sequence)
#define OUTPUT(t) ((((t) * directions + direction) * batch + sequence) * hidden + j)
#endif

#define PLACES                                                                                     \
    u32 i = GLOBAL_ID(0);                                                                     \
    if (i >= directions * batch * hidden) return;                                                  \
    u32 j = i % hidden, sequence = i / hidden % batch, direction = i / hidden / batch;

/* The states before the first step, which are the last ones where there is none. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void recurrent_start(INITIAL_STATE_POINTER INITIAL_CELL_POINTER GLOBAL float *state, GLOBAL float *cell, GLOBAL STORED *last, LAST_CELL u32 steps,
                     u32 batch, u32 hidden, u32 directions) {
    PLACES
    float h = FIRST_STATE, c = FIRST_CELL;
    state[OWN] = h;
    cell[OWN] = c;
    STORE(h, last, STATE);
    STORE_LAST_CELL(c);
}

#if GATES == 3
/* The hidden state times the reset gate, for the product inside of a GRU's last gate. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void recurrent_reset(GLOBAL const float *projected, GLOBAL const float *product, BIAS_POINTER
                     GLOBAL const float *state, GLOBAL float *reset, u32 step, u32 steps, u32 batch, u32 hidden,
                     u32 directions) {
    PLACES
    u32 t = BACKWARDS ? steps - 1 - step : step;
    u32 from = (direction * steps * batch + ROW(t)) * 3 * hidden + hidden + j;
    u32 of = (direction * batch + sequence) * 3 * hidden + hidden + j;
    reset[OWN] = F(clipped(projected[from] + product[of] + BIAS(1) + BIAS(4))) * state[OWN];
}
#endif

/* One step. Sequences that have ended, or backwards have not begun, keep their states. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void recurrent_step(GLOBAL const float *projected, GLOBAL const float *product, GLOBAL const float *inner,
                    BIAS_POINTER LENGTHS_POINTER PEEPHOLES_POINTER GLOBAL float *state, GLOBAL float *cell,
                    GLOBAL STORED *y, GLOBAL STORED *last, LAST_CELL u32 step, u32 steps, u32 batch, u32 hidden,
                    u32 directions) {
    PLACES
    u32 t = BACKWARDS ? steps - 1 - step : step;
    if ((i32)t >= LENGTH) {
        STORE(0.0f, y, OUTPUT(t));
        return;
    }
    u32 from = (direction * steps * batch + ROW(t)) * GATES * hidden + j;
    u32 of = (direction * batch + sequence) * GATES * hidden + j;
    float c = cell[OWN], h = state[OWN];
#define GATE(g) (projected[from + (g) * hidden] + product[of + (g) * hidden] + BIAS(g) + BIAS((g) + GATES))
#if GATES == 1
    h = F(clipped(GATE(0)));
#elif GATES == 3
    float update = F(clipped(GATE(0)));
#if LINEAR
    float reset = F(clipped(GATE(1)));
    float new_ = projected[from + 2 * hidden] + BIAS(2) + reset * (product[of + 2 * hidden] + BIAS(5));
#else
    float new_ = projected[from + 2 * hidden] + BIAS(2) + inner[of + 2 * hidden] + BIAS(5);
#endif
    h = (1.0f - update) * G(clipped(new_)) + update * h;
#else
    float input = F(clipped(GATE(0) + PEEPHOLE(0) * c));
    float forget = COUPLED ? 1.0f - input : F(clipped(GATE(2) + PEEPHOLE(2) * c));
    c = forget * c + input * G(clipped(GATE(3)));
    h = F(clipped(GATE(1) + PEEPHOLE(1) * c)) * H(clipped(c));
    cell[OWN] = c;
    STORE_LAST_CELL(c);
#endif
    state[OWN] = h;
    STORE(h, y, OUTPUT(t));
    STORE(h, last, STATE);
}
