/* A program to compare with itself: with -DCHANGED, `slow` does 8 times as much, so that it is told on a busy machine
 * too, and `often` is called 3 times as often. */
#include <stdio.h>

#ifdef CHANGED
#define LONGER 8
#define TIMES 3
#else
#define LONGER 1
#define TIMES 1
#endif

static volatile unsigned sum;

#define WORK(name, rounds) \
  __attribute__((noinline)) static void name(void) { \
    for (unsigned i = 0; i < (rounds); i++) sum = sum * 3 + i; \
  }

WORK(slow, 8000 * LONGER)
WORK(often, 8000)
WORK(parse, 20000)
WORK(hash, 12000)
WORK(store, 16000)
WORK(check, 10000)

__attribute__((noinline)) static void request(void) {
  parse();
  hash();
  check();
  store();
}

int main(void) {
  for (int round = 0; round < 4000; round++) {
    request();
    slow();
    for (int i = 0; i < TIMES; i++) often();
  }
  printf("%u\n", sum);
  return 0;
}
