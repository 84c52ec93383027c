/* Calls that reach the preloaded library while the C library, or the program, holds a lock. The first argument names the case, one for each process. The
 * second is a directory of the store (or a plain one), which each case has used before. A case prints "done" at its end, or hangs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <grp.h>
#include <iconv.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char path[4096];
static volatile int stop;
extern char **environ;

static const char *in(const char *dir, const char *name) {
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return path;
}

/* A thread frees most of its arena: `heap_trim` reads the overcommit setting from /proc with the arena locked, in a thread new to the library. */
static void *trim(void *unused) {
  enum { COUNT = 4000, LEN = 60000 };
  static __thread char *all[COUNT];
  for (int i = 0; i < COUNT; i++) memset(all[i] = malloc(LEN), 1, 4096);
  for (int i = 0; i < COUNT; i++) free(all[i]);
  return unused;
}

static void *allocate(void *unused) {
  while (!stop) {
    char *all[64];
    for (int i = 0; i < 64; i++) memset(all[i] = malloc(60000), 1, 4096);
    for (int i = 0; i < 64; i++) free(all[i]);
  }
  return unused;
}

static FILE *stream;
static void *flush(void *unused) {
  while (!stop) {
    fputs("some text\n", stream);
    fflush(NULL); /* with the list of streams locked */
    usleep(100);
  }
  return unused;
}

static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
static int log_fd;
static void lock(void) { pthread_mutex_lock(&own); }
static void unlock(void) { pthread_mutex_unlock(&own); }
static void *log_(void *unused) {
  while (!stop) {
    lock();
    if (write(log_fd, "line\n", 5) != 5) abort();
    unlock();
    usleep(100);
  }
  return unused;
}

static void *busy(void *unused) {
  while (!stop) {
    if (write(log_fd, "line\n", 5) != 5) abort();
  }
  return unused;
}

static void *load(void *library) {
  while (!stop) {
    void *loaded = dlopen(library, RTLD_NOW);
    if (loaded) dlclose(loaded);
  }
  return library;
}

static void *threads_come_and_go(void *unused) {
  while (!stop) {
    pthread_t one;
    if (pthread_create(&one, 0, trim, 0) == 0) pthread_join(one, 0);
    usleep(1000);
  }
  return unused;
}

static void forks(int count) {
  for (int i = 0; i < count; i++) {
    pid_t child = fork();
    if (child == 0) {
      free(malloc(100000));
      _exit(7);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7) abort();
  }
}

static const char *handled;
static void handler(int number) {
  int saved = errno;
  int fd = open(handled, O_RDWR | O_CREAT | O_APPEND, 0644);
  if (fd >= 0) {
    if (write(fd, "!", 1) != 1) abort();
    close(fd);
  }
  fd = open("/etc/hostname", O_RDONLY);
  if (fd >= 0) close(fd);
  (void)number;
  errno = saved;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  const char *what = arguments[1], *dir = arguments[2];
  pthread_t other, another;
  stream = fopen(in(dir, "before"), "w");
  if (!stream) return 3;
  fputs("x", stream);
  fflush(stream);
  if (!strcmp(what, "trim")) {
    pthread_create(&other, 0, trim, 0);
    pthread_join(other, 0);
  } else if (!strcmp(what, "arenas")) {
    pthread_t all[8];
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < 8; i++) pthread_create(&all[i], 0, trim, 0);
      for (int i = 0; i < 8; i++) pthread_join(all[i], 0);
    }
  } else if (!strcmp(what, "mapped")) { /* while a file is mapped, every `munmap` is examined */
    fprintf(stream, "%4095d", 1);
    fflush(stream);
    int fd = open(in(dir, "before"), O_RDWR);
    char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return 4;
    pthread_create(&other, 0, trim, 0);
    pthread_join(other, 0);
    at[0] = 'y';
    munmap(at, 4096);
  } else if (!strcmp(what, "stdio")) {
    pthread_create(&other, 0, flush, 0);
    forks(40);
    stop = 1;
    pthread_join(other, 0);
  } else if (!strcmp(what, "fork")) {
    pthread_create(&other, 0, allocate, 0);
    log_fd = open(in(dir, "log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    pthread_create(&another, 0, log_, 0);
    forks(40);
    stop = 1;
    pthread_join(other, 0);
    pthread_join(another, 0);
  } else if (!strcmp(what, "gate")) { /* other threads wait for the fork at any point of it */
    pthread_t all[6];
    log_fd = open(in(dir, "log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (int i = 0; i < 6; i++) pthread_create(&all[i], 0, busy, 0);
    forks(400);
    stop = 1;
    for (int i = 0; i < 6; i++) pthread_join(all[i], 0);
  } else if (!strcmp(what, "atfork")) {
    pthread_atfork(lock, unlock, unlock);
    log_fd = open(in(dir, "log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    pthread_create(&other, 0, log_, 0);
    forks(40);
    stop = 1;
    pthread_join(other, 0);
  } else if (!strcmp(what, "dlopen")) { /* the library is in `dir` */
    log_fd = open(in(dir, "log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    pthread_create(&other, 0, log_, 0);
    char *library = strdup(in(dir, "library.so"));
    pthread_create(&another, 0, load, library);
    for (int i = 0; i < 5; i++) {
      void *loaded = dlopen(library, RTLD_NOW);
      if (!loaded || !dlsym(loaded, "answer")) return 5;
      pthread_t third; /* its thread-local memory was set up after the preloaded library's */
      pthread_create(&third, 0, trim, 0);
      pthread_join(third, 0);
      dlclose(loaded);
    }
    stop = 1;
    pthread_join(other, 0);
    pthread_join(another, 0);
  } else if (!strcmp(what, "signals")) {
    handled = strdup(in(dir, "handled"));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval timer = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &timer, 0);
    for (int i = 0; i < 3000; i++) {
      free(malloc(200000));
      fputs("z", stream);
      fflush(stream);
    }
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, 0);
  } else if (!strcmp(what, "spawn")) {
    pthread_create(&other, 0, allocate, 0);
    log_fd = open(in(dir, "log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    pthread_create(&another, 0, log_, 0);
    for (int i = 0; i < 20; i++) {
      char *words[] = {"true", 0};
      pid_t child;
      if (posix_spawnp(&child, "true", 0, 0, words, environ)) return 6;
      waitpid(child, 0, 0);
    }
    stop = 1;
    pthread_join(other, 0);
    pthread_join(another, 0);
  } else if (!strcmp(what, "resolver")) {
    pthread_create(&other, 0, threads_come_and_go, 0);
    for (int i = 0; i < 20; i++) {
      struct addrinfo *found = 0;
      if (getaddrinfo("localhost", "80", 0, &found) == 0) freeaddrinfo(found);
      getgrgid(0);
    }
    stop = 1;
    pthread_join(other, 0);
  } else if (!strcmp(what, "locale")) {
    pthread_create(&other, 0, threads_come_and_go, 0);
    for (int i = 0; i < 20; i++) {
      setlocale(LC_ALL, i % 2 ? "C.UTF-8" : "C");
      iconv_t into = iconv_open(i % 2 ? "UTF-16" : "ISO-8859-1", "UTF-8");
      if (into != (iconv_t)-1) iconv_close(into);
    }
    stop = 1;
    pthread_join(other, 0);
  } else if (!strcmp(what, "backtrace")) {
    pthread_create(&other, 0, threads_come_and_go, 0);
    int fd = open(in(dir, "trace"), O_WRONLY | O_CREAT, 0644);
    for (int i = 0; i < 20; i++) {
      void *frames[32];
      backtrace_symbols_fd(frames, backtrace(frames, 32), fd);
    }
    close(fd);
    stop = 1;
    pthread_join(other, 0);
  } else if (!strcmp(what, "daemon")) { /* somebody kills it repeatedly: calls wait for the next one */
    time_t end = time(0) + atoi(arguments[3]);
    for (int i = 0; time(0) < end; i++) {
      char *words[] = {"true", 0};
      pid_t child;
      int fd = open(in(dir, "again"), O_RDWR | O_CREAT | O_TRUNC, 0644);
      if (fd < 0 || write(fd, "text", 4) != 4 || fsync(fd) || close(fd) || unlink(path)) {
        fprintf(stderr, "round %d: %s\n", i, strerror(errno));
        return 8;
      }
      if (i % 16 == 0 && posix_spawnp(&child, "true", 0, 0, words, environ) == 0) waitpid(child, 0, 0);
      if (i % 16 == 8) forks(1);
    }
  } else {
    return 2;
  }
  fclose(stream);
  puts("done");
  return 0;
}
