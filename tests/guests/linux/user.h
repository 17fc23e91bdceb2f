/* The least that a program of a Linux guest needs: system calls, no library. Linux x86-64. */
#pragma once

enum { SYS_FORK = 57, SYS_EXECVE = 59, SYS_WAIT4 = 61 };

static inline long call(long number, long first, long second, long third) {
  long result;
  register long fourth __asm__("r10") = 0;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
}
