/* A fixed amount of work in 16 threads, each about 30 frames deep and with data of its own; at the end the
   processor time of all of them, in seconds, goes into the file that is named first. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { THREADS = 16, ROUNDS = 220, WORDS = 4096, DEPTH = 26 };

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

__attribute__((noinline)) static uint32_t leaf(uint32_t x)
{
    for (int i = 0; i < 2000; i++)
        x = x * 1664525 + 1013904223;
    return x;
}

__attribute__((noinline)) static uint32_t descend(int depth, uint32_t *words, uint32_t seed)
{
    uint32_t own[8] = {seed, depth};
    if (depth == 0) {
        for (int i = 0; i < WORDS; i++)
            words[i] = seed = seed * 1664525 + 1013904223;
        qsort(words, WORDS, sizeof *words, by_value);
        return words[seed % WORDS];
    }
    own[seed % 8] += leaf(seed);
    return descend(depth - 1, words, own[seed % 8]) + own[depth % 8];
}

static void *work(void *unused)
{
    (void)unused;
    uint32_t *words = malloc(WORDS * sizeof *words), sum = 1;
    for (int i = 0; words && i < ROUNDS; i++)
        sum += descend(DEPTH, words, sum);
    free(words);
    return (void *)(uintptr_t)sum;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    struct rusage used;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    getrusage(RUSAGE_SELF, &used);
    FILE *file = count > 1 ? fopen(arguments[1], "w") : stdout;
    if (!file)
        return 1;
    fprintf(file, "%f\n", used.ru_utime.tv_sec + used.ru_stime.tv_sec +
                              (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6);
    return fclose(file);
}
