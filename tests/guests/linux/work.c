/* A process that never ends: FIRST and SECOND, in shares of FIRST_PART and 10 - FIRST_PART of ten, and then some copying
   through a pipe, so that a good part of its time is the kernel's. The two programs that are made of it lie at the same
   addresses, so that only address spaces tell them apart. No library: frames begin here. */

enum { SYS_READ = 0, SYS_WRITE = 1, SYS_PIPE = 22 };

static long call(long number, long first, long second, long third) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third)
                   : "rcx", "r11", "memory");
  return result;
}

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

static char bytes[32768];

/* 32 KiB through the pipe, 4 times. */
static __attribute__((noinline)) void copy(int *ends) {
  for (int turn = 0; turn < 4; turn++) {
    call(SYS_WRITE, ends[1], (long)bytes, sizeof bytes);
    call(SYS_READ, ends[0], (long)bytes, sizeof bytes);
  }
}

__attribute__((noreturn, used)) void MAIN(void) {
  int ends[2];

  call(SYS_PIPE, (long)ends, 0, 0);
  for (;;) {
    FIRST(FIRST_PART);
    SECOND(10 - FIRST_PART);
    copy(ends);
  }
}

/* The outermost frame: its frame pointer is 0. */
#define NAME_OF(function) #function
#define START(function) __asm__(".globl _start\n.type _start, @function\n_start: xor %ebp, %ebp\n call " NAME_OF(function) "\n.size _start, . - _start")
START(MAIN);
