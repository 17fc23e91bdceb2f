/* Three functions whose shares of the processor time it tells itself: a line a second. They are called through
   `outer`, which calls none itself, so that a leaf's caller can be missed. One worker is a thread.
   A round takes about as long as a sampler's period: if all took the same time, a sampler would meet the same
   functions again and again. */
#include <pthread.h>
#include <stdio.h>
#include <stdint.h>
#include <time.h>

#define PART __attribute__((noinline))
static volatile uint64_t sink;

static PART uint64_t step(uint64_t x, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

/* The work is in the functions themselves; `alpha` is a leaf, `beta` saves registers, `gamma_` calls a leaf. */
PART uint64_t alpha(uint64_t x, unsigned percent)
{
    for (unsigned i = 0; i < 5000 * percent; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

PART uint64_t beta(uint64_t x, const uint64_t *more, unsigned percent)
{
    uint64_t a = x, b = more[0], c = more[1], d = more[2], e = more[3], f = more[4], g = more[5], h = more[6];
    for (unsigned i = 0; i < 7000 * percent; i++) {
        a ^= b << 13, b += c >> 7, c ^= d << 17, d += e;
        e ^= f >> 3, f += g << 5, g ^= h >> 11, h += a;
    }
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

PART uint64_t gamma_(uint64_t x, unsigned percent)
{
    for (unsigned i = 0; i < 10 * percent; i++)
        x = step(x, 200) + 1;
    return x;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

PART void outer(double *taken)
{
    static const uint64_t more[7] = {1, 2, 3, 5, 7, 11, 13};
    static uint64_t dice = 1;
    dice = dice * 6364136223846793005u + 1;
    unsigned percent = 50 + (dice >> 33) % 101;
    double a = now();
    sink += alpha(sink + 1, percent);
    double b = now();
    sink += beta(sink, more, percent);
    double c = now();
    sink += gamma_(sink, percent);
    double d = now();
    taken[0] += b - a, taken[1] += c - b, taken[2] += d - c;
}

static void *work(void *unused)
{
    double taken[3] = {0, 0, 0}, told = now();
    for (;;) {
        outer(taken);
        if (now() > told + 0.2) {
            told = now();
            printf("alpha %.4f beta %.4f gamma_ %.4f\n", taken[0], taken[1], taken[2]);
            fflush(stdout);
        }
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    return 0;
}
