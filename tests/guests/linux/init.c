/* The first process of the Linux guest: starts the two programs, and waits for what never ends. */
#include "user.h"

static void start(const char *program) {
  const char *arguments[] = {program, 0};
  if (call(SYS_FORK, 0, 0, 0) == 0)
    call(SYS_EXECVE, (long)program, (long)arguments, 0);
}

__attribute__((noreturn)) void _start(void) {
  start("/one");
  start("/two");
  for (;;)
    call(SYS_WAIT4, -1, 0, 0);
}
