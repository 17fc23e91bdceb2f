/* A program whose functions take turns for milliseconds: what is sampled in one must be within a call of it. */
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define WORK(n, steps) \
  for (int i = 0; i < (steps); i++) n = n * 6364136223846793005u + (n >> 33)

__attribute__((noinline)) static uint64_t plough(uint64_t n) {
  WORK(n, 3000000);
  return n ^ 1;
}

__attribute__((noinline)) static uint64_t sow(uint64_t n) {
  WORK(n, 1000000);
  return n ^ 2;
}

__attribute__((noinline)) static uint64_t reap(uint64_t n) {
  n += sow(n);
  WORK(n, 2000000);
  usleep(1000);
  return n ^ 3;
}

int main(void) {
  uint64_t n = getpid();
  for (int year = 0; year < 150; year++) n = reap(sow(plough(n)));
  printf("%llx\n", (unsigned long long)n);
  return 0;
}
