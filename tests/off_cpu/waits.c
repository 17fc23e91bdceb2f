// Threads whose waits are known by their own clock. `waits few` has three: one sleeps, one takes a futex over,
// one reads a pipe. `waits short` has one that waits in two functions in turns, briefly. `waits many N` has N that sleep a
// few times each and end. Prints nanoseconds.

#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 20 };

static int word;
static int ends[2];
static long slept, taken, piped, all;

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void nap(long ns) {
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

__attribute__((noinline)) static void *sleeps(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        long before = now();
        nap(30000000);
        slept += now() - before;
    }
    return unused;
}

__attribute__((noinline)) static void *takes_over(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        long before = now();
        while (!__atomic_exchange_n(&word, 0, __ATOMIC_ACQ_REL))
            syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
        taken += now() - before;
    }
    return unused;
}

__attribute__((noinline)) static void *reads(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        char byte;
        long before = now();
        if (read(ends[0], &byte, 1) != 1)
            exit(1);
        piped += now() - before;
    }
    return unused;
}

__attribute__((noinline)) static void *naps(void *unused) {
    long mine = 0;
    for (int round = 0; round < 5; round++) {
        long before = now();
        nap(20000000);
        mine += now() - before;
    }
    __atomic_fetch_add(&all, mine, __ATOMIC_RELAXED);
    return unused;
}

static void start(pthread_t *thread, void *(*run)(void *)) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    if (pthread_create(thread, &small, run, NULL))
        exit(1);
}

static void few(void) {
    pthread_t threads[3];
    if (pipe(ends))
        exit(1);
    start(&threads[0], sleeps);
    start(&threads[1], takes_over);
    start(&threads[2], reads);
    for (int round = 0; round < ROUNDS; round++) {
        nap(20000000);
        __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
        // Not before it was taken: one that is not seen would leave the other waiting.
        while (__atomic_load_n(&word, __ATOMIC_ACQUIRE))
            nap(1000000);
        nap(10000000);
        if (write(ends[1], "x", 1) != 1)
            exit(1);
    }
    for (int thread = 0; thread < 3; thread++)
        pthread_join(threads[thread], NULL);
    printf("sleeps %ld\ntakes_over %ld\nreads %ld\n", slept, taken, piped);
}

__attribute__((noinline)) static long waits_often(void) {
    long before = now();
    nap(60000);
    return now() - before;
}

__attribute__((noinline)) static long waits_longer(void) {
    long before = now();
    nap(400000);
    return now() - before;
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "short")) {
        long often = 0, longer = 0;
        for (int round = 0; round < 2000; round++) {
            often += waits_often();
            longer += waits_longer();
        }
        printf("waits_often %ld\nwaits_longer %ld\n", often, longer);
        return 0;
    }
    if (count > 2 && !strcmp(words[1], "many")) {
        int many = atoi(words[2]);
        pthread_t *threads = calloc(many, sizeof *threads);
        for (int thread = 0; thread < many; thread++)
            start(&threads[thread], naps);
        for (int thread = 0; thread < many; thread++)
            pthread_join(threads[thread], NULL);
        printf("naps %ld\n", all);
    } else {
        few();
    }
    return 0;
}
