/* Uses files, processes and memory as programs do; its results are the same with and without watching. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <errno.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); exit(99); } } while (0)

static const char *dir;
static int shared_fd;
static volatile sig_atomic_t handled;

static const char *path(const char *name) {
    static char buffers[8][512];
    static int next;
    char *buffer = buffers[next++ % 8];
    snprintf(buffer, sizeof buffers[0], "%s/%s", dir, name);
    return buffer;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *thread(void *number) {
    long n = (long)number;
    char block[4096], back[4096];
    for (long i = 0; i < 256; i++) {
        memset(block, (int)(n * 64 + i), sizeof block);
        off_t at = (i * 4 + n) * 4096;
        CHECK(pwrite(shared_fd, block, sizeof block, at) == sizeof block);
        CHECK(pread(shared_fd, back, sizeof back, at) == sizeof back);
        CHECK(memcmp(block, back, sizeof block) == 0);
    }
    return NULL;
}

static void handler(int signal) {
    char byte;
    (void)signal;
    /* A handler may read, also from the file in use. */
    if (pread(shared_fd, &byte, 1, 0) == 1)
        handled++;
}

__attribute__((noinline)) char *make_hot(void) {
    char *memory = malloc(24 << 20);
    memset(memory, 1, 24 << 20);
    return memory + (memory == NULL);
}
__attribute__((noinline)) char *make_cold(void) {
    char *memory = malloc(24 << 20);
    memset(memory, 2, 24 << 20);
    return memory + (memory == NULL);
}
__attribute__((noinline)) void make_short(void) {
    for (int i = 0; i < 300; i++) {
        char *memory = calloc(1, 1 << 20);
        CHECK(memory && memory[4711] == 0);
        memory[5] = 1;
        free(memory);
    }
}
__attribute__((noinline)) void grow(void) {
    char *memory = NULL;
    for (size_t bytes = 1 << 20; bytes <= 8 << 20; bytes *= 2) {
        memory = realloc(memory, bytes);
        CHECK(memory);
        if (bytes > 1 << 20)
            CHECK(memory[(1 << 20) - 1] == 42 && memory[bytes / 2 - 1] == 42);
        memory[(1 << 20) - 1] = memory[bytes - 1] = 42;
    }
    memory = reallocarray(memory, 12, 1 << 20);
    CHECK(memory && memory[(8 << 20) - 1] == 42);
    volatile size_t too_many = (size_t)-1;
    CHECK(reallocarray(memory, too_many, 16) == NULL && memory[(1 << 20) - 1] == 42);
    free(memory);
    char *mapped = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    mapped[0] = 9;
    /* Fails if the mapping was split. */
    mapped = mremap(mapped, 4 << 20, 9 << 20, MREMAP_MAYMOVE);
    CHECK(mapped != MAP_FAILED && mapped[0] == 9);
    mapped[(9 << 20) - 1] = 1;
    CHECK(munmap(mapped, 9 << 20) == 0);
    void *aligned;
    CHECK(posix_memalign(&aligned, 1 << 16, 3 << 20) == 0 && ((size_t)aligned & 0xffff) == 0);
    free(aligned);
}

static void files(void) {
    char block[4096];
    memset(block, 'b', sizeof block);
    int fd = open(path("strided"), O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0);
    for (int i = 0; i < 300; i++)
        CHECK(write(fd, block, sizeof block) == sizeof block);
    for (int i = 0; i < 100; i++) {
        CHECK(lseek(fd, i * 3 * 4096L, SEEK_SET) == i * 3 * 4096L);
        CHECK(read(fd, block, sizeof block) == sizeof block);
    }
    errno = 0;
    CHECK(read(-1, block, 1) == -1 && errno == EBADF);
    CHECK(close(fd) == 0 && close(fd) == -1 && errno == EBADF);
    CHECK(open(path("no/such"), O_RDONLY) == -1 && errno == ENOENT);

    FILE *stream = fopen(path("stream"), "w");
    CHECK(stream);
    for (int i = 0; i < 20000; i++)
        CHECK(fwrite("0123456789", 1, 10, stream) == 10);
    for (int i = 0; i < 20000; i++)
        CHECK(fprintf(stream, "line %d\n", i) > 0);
    CHECK(fclose(stream) == 0);
    stream = fopen(path("stream"), "r");
    char ten[10];
    CHECK(stream && fread(ten, 1, 10, stream) == 10 && memcmp(ten, "0123456789", 10) == 0);
    CHECK(fseek(stream, 200000, SEEK_SET) == 0 && fread(ten, 1, 6, stream) == 6 && memcmp(ten, "line 0", 6) == 0);
    CHECK(fclose(stream) == 0);

    fd = open(path("mapped"), O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0 && ftruncate(fd, 1 << 20) == 0);
    char *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    memset(mapped, 'm', 1 << 20);
    CHECK(pwrite(fd, "x", 1, 0) == 1);
    CHECK(munmap(mapped, 1 << 20) == 0 && close(fd) == 0);

    fd = open(path("before"), O_WRONLY | O_CREAT, 0644);
    struct iovec pieces[3] = {{block, 1000}, {block, 1500}, {block, 500}};
    CHECK(writev(fd, pieces, 3) == 3000 && close(fd) == 0);
    CHECK(rename(path("before"), path("renamed")) == 0);

    fd = open(path("duplicated"), O_WRONLY | O_CREAT, 0644);
    int other = dup(fd), third = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    CHECK(third >= 100 && write(fd, "one ", 4) == 4 && close(fd) == 0);
    CHECK(write(other, "two ", 4) == 4 && dup2(other, third) == third && close(other) == 0);
    CHECK(write(third, "six ", 4) == 4 && close(third) == 0);
    for (int i = 0; i < 20; i++) {
        fd = open(path("appended"), O_WRONLY | O_CREAT | O_APPEND, 0644);
        CHECK(write(fd, "more", 4) == 4 && close(fd) == 0);
    }
    fd = open(path("deleted"), O_RDWR | O_CREAT, 0644);
    CHECK(unlink(path("deleted")) == 0 && write(fd, block, 4096) == 4096 && pread(fd, block, 4096, 0) == 4096);
    CHECK(close(fd) == 0);
}

static void children(void) {
    int status, fd = open(path("forked"), O_WRONLY | O_CREAT, 0644);
    char block[1000];
    memset(block, 'f', sizeof block);
    CHECK(write(fd, block, sizeof block) == sizeof block);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 4; i++)
            CHECK(write(fd, block, sizeof block) == sizeof block);
        if (fork() == 0) {
            char command[600];
            snprintf(command, sizeof command, "printf execed > %s", path("execed"));
            execl("/bin/sh", "sh", "-c", command, (char *)NULL);
            _exit(98);
        }
        CHECK(wait(&status) > 0 && status == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(fd) == 0);
    fd = open(path("vforked"), O_WRONLY | O_CREAT, 0644);
    child = vfork();
    if (child == 0) {
        /* It shares the parent's memory, but closing its descriptor does not affect the parent. */
        close(fd);
        execl("/bin/true", "true", (char *)NULL);
        _exit(97);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(write(fd, "not lost", 8) == 8 && close(fd) == 0);
}

int main(int count, char **words) {
    CHECK(count == 2);
    dir = words[1];
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGPROF, &action, NULL) == 0);
    shared_fd = open(path("threads"), O_RDWR | O_CREAT, 0644);
    CHECK(shared_fd >= 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    struct itimerspec often = {{0, 200000}, {0, 200000}}, never = {{0, 0}, {0, 0}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, (void *)i) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(timer_settime(timer, 0, &never, NULL) == 0);
    files();
    children();
    char *cold = make_cold(), *hot = make_hot();
    make_short();
    grow();
    unsigned long sum = 0;
    for (double end = now() + 4; now() < end;)
        for (int i = 0; i < 24 << 20; i += 512)
            sum += hot[i]++;
    printf("%d %d done\n", cold[12345], sum != 1);
    free(hot);
    free(cold);
    fprintf(stderr, "said on standard error\n");
    return 7;
}
