/* A process that never ends: rounds of FIRST and SECOND, in shares of FIRST_PART and 10 - FIRST_PART of ten, and then
   some copying through a pipe, so that a good part of its time is the kernel's. Then it is the other program's turn,
   until that gives it back: the two share the processor by their work, whatever the scheduler does. The two programs
   that are made of this lie at the same addresses, so that only address spaces tell them apart. No library: frames
   begin here. */

/* What init has opened: the way to the other program, which is asked and told in turns. */
enum { OTHER = 3 };

#ifdef __aarch64__
enum { SYS_READ = 63, SYS_WRITE = 64, SYS_PIPE2 = 59 };

static long call(long number, long first, long second, long third) {
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = first, x1 __asm__("x1") = second;
  register long x2 __asm__("x2") = third;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
#else
enum { SYS_READ = 0, SYS_WRITE = 1, SYS_PIPE2 = 293 };

static long call(long number, long first, long second, long third) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third)
                   : "rcx", "r11", "memory");
  return result;
}
#endif

/* Turns of a loop; some 0.3 ms under emulation, so that a recording has hundreds of each program's turns. */
#define PART 8000

/* What a turn does: as long everywhere, as only numbers in it differ, and other code in the other program. */
#ifdef IS_ONE
#define STEP(turn) value ^= (value << 7) + (left >> (turn + 1));
#else
#define STEP(turn) value ^= (value << 9) + (left >> (turn + 8));
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

/* 32 KiB through the pipe. */
static __attribute__((noinline)) void copy(int *ends) {
  call(SYS_WRITE, ends[1], (long)bytes, sizeof bytes);
  call(SYS_READ, ends[0], (long)bytes, sizeof bytes);
}

__attribute__((noreturn, used)) void MAIN(void) {
  int ends[2];
  char turn = 0;

  call(SYS_PIPE2, (long)ends, 0, 0);
#ifndef IS_ONE
  call(SYS_READ, OTHER, (long)&turn, 1);
#endif
  for (;;) {
    for (int round = 0; round < ROUNDS; round++) {
      FIRST(FIRST_PART);
      SECOND(10 - FIRST_PART);
    }
    copy(ends);
    call(SYS_WRITE, OTHER, (long)&turn, 1);
    call(SYS_READ, OTHER, (long)&turn, 1);
  }
}

/* The outermost frame: its frame pointer is 0. */
#define NAME_OF(function) #function
#ifdef __aarch64__
#define BEGIN "mov x29, xzr\n mov x30, xzr\n bl "
#else
#define BEGIN "xor %ebp, %ebp\n call "
#endif
#define START(function) __asm__(".globl _start\n.type _start, %function\n_start: " BEGIN NAME_OF(function) "\n.size _start, . - _start")
START(MAIN);
