/* A process that computes for ever: FIRST and SECOND, in shares of FIRST_PART and 10 - FIRST_PART of ten. The two
   programs that are made of it lie at the same addresses, so that only address spaces tell them apart. */

/* Turns of a loop; about a millisecond under emulation. */
#define PART 20000

/* What a turn does: as long in both functions of a program, and other code in the other program. */
#ifdef IS_ONE
#define STEP(turn) value = value * 3 + left * turn;
#else
#define STEP(turn) value ^= (value << 7) + (left >> turn);
#endif
#define STEPS STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8)

volatile unsigned long sink;

#define FUNCTION(name)                                             \
  static __attribute__((noinline)) void name(unsigned long parts) { \
    unsigned long value = sink;                                    \
    for (unsigned long left = parts * PART; left; left--) {        \
      STEPS __asm__ volatile("" : "+r"(value));                    \
    }                                                              \
    sink = value;                                                  \
  }

FUNCTION(FIRST)
FUNCTION(SECOND)

static __attribute__((noinline)) void MAIN(void) {
  for (;;) {
    FIRST(FIRST_PART);
    SECOND(10 - FIRST_PART);
  }
}

__attribute__((noreturn)) void _start(void) {
  MAIN();
  __builtin_unreachable();
}
