/* The first process of the Linux guest: tells the kernel's functions on the console if its last word is `tell` (words of
 * the command line that the kernel doesn't know come before it), starts the two programs, which take turns by a way to
 * each other, and waits for what never ends: if one of them does, so does the guest, in a panic. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell_functions(void) {
  char line[512], kind;
  FILE *symbols;
  int hidden;

  mkdir("/proc", 0755);
  mount("proc", "/proc", "proc", 0, 0);
  hidden = open("/proc/sys/kernel/kptr_restrict", O_WRONLY);
  if (hidden < 0 || write(hidden, "0", 1) != 1)
    puts("addresses are hidden");
  symbols = fopen("/proc/kallsyms", "r");
  while (symbols && fgets(line, sizeof line, symbols)) {
    if (sscanf(line, "%*s %c", &kind) == 1 && strchr("tTwW", kind) && !strchr(line, '['))
      fputs(line, stdout);
  }
}

enum { OTHER = 3 }; /* in each program, the way to the other: see work.c */

static void start(const char *program, int way) {
  if (fork())
    return;
  dup2(way, OTHER);
  execl(program, program, (char *)0);
  _exit(1);
}

int main(int count, char **arguments) {
  int ends[2], ways[2];
  char none;

  if (!strcmp(arguments[count - 1], "tell"))
    tell_functions();
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ways) || pipe2(ends, O_CLOEXEC))
    return 1;
  start("/one", ways[0]);
  start("/two", ways[1]);
  /* Ends when both are the programs that they are to be. */
  close(ends[1]);
  while (read(ends[0], &none, 1) > 0)
    ;
  puts("ready");
  fflush(stdout);
  wait(0);
  return 1;
}
