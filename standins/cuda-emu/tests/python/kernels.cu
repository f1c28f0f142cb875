// Kernels of the kind that users write. nvrtc.py compiles and runs them.
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n)
    c[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy(float a, const float *x, float *y, size_t n) {
  size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = a * x[i] + y[i];
}

// Each block of 128 threads stores one sum.
extern "C" __global__ void block_sums(const int *x, long long *sums, int n) {
  __shared__ long long part[128];
  long long own = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    own += x[i];
  part[threadIdx.x] = own;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    sums[blockIdx.x] = part[0];
}

extern "C" __global__ void transpose(const float *in, float *out, int width, int height) {
  __shared__ float tile[16][17];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x < width && y < height)
    tile[threadIdx.y][threadIdx.x] = in[y * width + x];
  __syncthreads();
  x = blockIdx.y * 16 + threadIdx.x;
  y = blockIdx.x * 16 + threadIdx.y;
  if (x < height && y < width)
    out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void histogram(const unsigned char *data, unsigned *bins, int n) {
  __shared__ unsigned own[256];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&own[data[i]], 1u);
  __syncthreads();
  if (own[threadIdx.x])
    atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

extern "C" __global__ void strided_copy(const float4 *__restrict__ in, float4 *__restrict__ out, int rows, int columns, int pitch_in,
                                        int pitch_out) {
  for (int row = blockIdx.y; row < rows; row += gridDim.y)
    for (int column = blockIdx.x * blockDim.x + threadIdx.x; column < columns; column += gridDim.x * blockDim.x)
      out[row * pitch_out + column] = in[row * pitch_in + column];
}

extern "C" __global__ void matrix_product(const double *a, const double *b, double *c, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n || column >= n)
    return;
  double sum = 0;
  for (int k = 0; k < n; k++)
    sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

extern "C" __global__ void gather(const int *index, const unsigned char *in, unsigned char *out, int row_len, int rows) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x)
    for (int i = threadIdx.x; i < row_len; i += blockDim.x)
      out[(size_t)row * row_len + i] = in[(size_t)index[row] * row_len + i];
}

// Uses the shared memory that the launch gives.
extern "C" __global__ void reverse(int *values, int n) {
  extern __shared__ int copies[];
  copies[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = copies[n - 1 - threadIdx.x];
}

__constant__ float weights[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};

extern "C" __global__ void blur(const float *in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float sum = 0;
  for (int k = -2; k <= 2; k++)
    sum += weights[k + 2] * in[min(max(i + k, 0), n - 1)];
  out[i] = sum;
}

extern "C" __global__ void divide(const long long *a, const long long *b, long long *quotients, int *remainders, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    quotients[i] = a[i] / b[i];
    remainders[i] = (int)(a[i] % b[i]);
  }
}

// Stores the greatest value, the greatest pair of a value and its index, and all values by exclusive or.
extern "C" __global__ void reductions(const int *x, int *greatest, unsigned long long *pair, int *mixed, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  atomicMax(greatest, x[i]);
  atomicMax(pair, ((unsigned long long)(unsigned)x[i] << 32) | (unsigned)i);
  int before;
  do
    before = *(volatile int *)mixed;
  while (atomicCAS(mixed, before, before ^ x[i]) != before);
}

extern "C" __global__ void prefix_sums(const int *in, int *out, int n) {
  __shared__ int sums[2][128];
  int i = threadIdx.x, from = 0;
  sums[0][i] = i < n ? in[i] : 0;
  __syncthreads();
  for (int step = 1; step < 128; step *= 2) {
    sums[1 - from][i] = sums[from][i] + (i >= step ? sums[from][i - step] : 0);
    from = 1 - from;
    __syncthreads();
  }
  if (i < n)
    out[i] = sums[from][i];
}

struct Pair {
  float key;
  int value;
};

extern "C" __global__ void pairs(const Pair *in, Pair *out, Pair add, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    Pair pair = in[i];
    pair.key += add.key;
    pair.value -= add.value;
    out[n - 1 - i] = pair;
  }
}

// Needs memory of the thread, because the index is not known before.
extern "C" __global__ void shuffle(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, values[16];
  for (int k = 0; k < 16; k++)
    values[k] = in[(i * 16 + k) % n];
  int at = i & 15;
  for (int k = 0; k < 40; k++) {
    at = (at * 5 + values[at]) & 15;
    values[at] += k;
  }
  if (i < n)
    out[i] = values[in[i] & 15];
}

__device__ __noinline__ unsigned mix(unsigned x, unsigned rounds) {
  return rounds == 0 ? x : mix(x * 1664525u + 1013904223u, rounds - 1);
}

extern "C" __global__ void hashes(unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = mix(i, i % 7);
}

extern "C" __global__ void narrow(const unsigned char *in, unsigned short *products, signed char *shifted, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    products[i] = in[i] * in[n - 1 - i];
    shifted[i] = (signed char)(in[i] - 100) >> 1;
  }
}

struct Table {
  int number;
  int values[9];
};

// The address of an element of the parameter is known on the device alone.
extern "C" __global__ void look_up(const Table table, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = table.values[i % table.number];
}

extern "C" __global__ void halves(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    assert(in[i] % 2 == 0);
    out[i] = in[i] / 2;
  }
}

extern "C" __global__ void roots(const float *in, float *out, int *rounded, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = fminf(sqrtf(in[i]), 20.f) / 3.f;
    rounded[i] = __float2int_rn(in[i]) + (int)in[i];
  }
}
