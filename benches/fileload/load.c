/*
 * File access patterns of parallel programs, like those of IOR and mdtest, by plain calls: in any directory, a mount's or a
 * preloaded one's.
 *
 *     load DIR PROCESSES MIB FILES [NAME...]      one line "NAME FIGURE UNIT" for each measurement
 *
 * MIB: bytes of each process; FILES: files of each process. Processes are forked before anything is opened, and wait for each
 * other before and after each phase; a phase lasts from the first start to the last end. Each process reads and compares what
 * its neighbour wrote. Files are created anew for each measurement.
 *
 * Variables: LOAD_RANK=N LOAD_MEETING=FILE: this process is one rank of PROCESSES that are started by themselves (on several
 * nodes, with a DIR each), and meet in a new file of zeros, of a page. LOAD_SETTLE=COMMAND: the first rank runs it at the end of
 * each phase that writes, within its time. LOAD_COLD=1: the kernel's cache of a file, a mount's say, is dropped before it is read
 * for the first time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 64, PATH_BYTES = 4096 };

struct shared {
    atomic_int is_ready;
    pthread_barrier_t barrier;
    double begin[RANKS_MAX], end[RANKS_MAX];
};

static struct shared *together;
static const char *dir;
static int ranks, rank, argument_count;
static char **arguments;
static long bytes_each, files_each;

static void fail(const char *what)
{
    fprintf(stderr, "load: rank %d: %s: %s\n", rank, what, strerror(errno));
    _exit(1);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void meet(void) { pthread_barrier_wait(&together->barrier); }

static void begin(void)
{
    meet();
    together->begin[rank] = now_s();
}

/* Ends a phase; rank 0 prints the rate per second. */
static void end(const char *name, const char *phase, double amount, const char *unit)
{
    together->end[rank] = now_s();
    meet();
    if (rank == 0) {
        double first = together->begin[0], last = together->end[0];
        for (int other = 1; other < ranks; other++) {
            if (together->begin[other] < first) first = together->begin[other];
            if (together->end[other] > last) last = together->end[other];
        }
        printf("%s_%s %.3f %s\n", name, phase, amount / (last - first), unit);
        fflush(stdout);
    }
    meet();
}

/* Has everything that was written taken what it promises, where calls return before. */
static void settle(void)
{
    const char *words = getenv("LOAD_SETTLE");
    if (words == NULL) return;
    meet();
    if (rank == 0 && system(words) != 0) fail(words);
}

static int wanted(const char *name)
{
    for (int i = 0; i < argument_count; i++)
        if (strcmp(arguments[i], name) == 0) return 1;
    return argument_count == 0;
}

static void fill(char *buffer, long size, long at, int owner)
{
    for (long place = 0; place + 8 <= size; place += 512) {
        uint64_t word = (uint64_t)(at + place) * 31 + (uint64_t)owner;
        memcpy(buffer + place, &word, sizeof word);
    }
}

static void check(const char *buffer, long size, long at, int owner)
{
    for (long place = 0; place + 8 <= size; place += 65536) {
        uint64_t word;
        memcpy(&word, buffer + place, sizeof word);
        if (word != (uint64_t)(at + place) * 31 + (uint64_t)owner) {
            errno = EIO;
            fail("other bytes than were written");
        }
    }
}

static void forget(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) fail(path);
    close(fd);
}

/* Offset of a rank's n-th transfer: in its own file, or interleaved with the other ranks' in a shared one. */
static long place_of(long n, long size, int is_shared, int whose)
{
    return is_shared ? (n * ranks + whose) * size : n * size;
}

static void bytes(const char *name, long size, int is_shared)
{
    char path[PATH_BYTES];
    long count = bytes_each / size;
    double mib = (double)count * (double)size * ranks / (1 << 20);
    char *buffer = aligned_alloc(4096, (size_t)(size + 4095) / 4096 * 4096);
    memset(buffer, 'x', (size_t)size);
    int neighbour = (rank + 1) % ranks;
    snprintf(path, sizeof path, "%s/%s.%d", dir, name, is_shared ? 0 : rank);
    for (int pass = 0; pass < 2; pass++) {
        /* The first pass writes new files, the second overwrites them. */
        begin();
        int fd = open(path, O_CREAT | O_WRONLY, 0644);
        if (fd < 0) fail(path);
        for (long n = 0; n < count; n++) {
            long at = place_of(n, size, is_shared, rank);
            fill(buffer, 8, at, rank);
            if (pwrite(fd, buffer, (size_t)size, at) != size) fail("pwrite");
        }
        if (close(fd) != 0) fail("close");
        settle();
        end(name, pass == 0 ? "write" : "overwrite", mib, "MiB/s");
    }
    snprintf(path, sizeof path, "%s/%s.%d", dir, name, is_shared ? 0 : neighbour);
    if (getenv("LOAD_COLD") != NULL) forget(path);
    for (int pass = 0; pass < 2; pass++) {
        begin();
        int fd = open(path, O_RDONLY);
        if (fd < 0) fail(path);
        for (long n = 0; n < count; n++) {
            long at = place_of(n, size, is_shared, neighbour);
            if (pread(fd, buffer, (size_t)size, at) != size) fail("pread");
            check(buffer, 8, at, neighbour);
        }
        close(fd);
        end(name, pass == 0 ? "read" : "reread", mib, "MiB/s");
    }
    if (is_shared ? rank == 0 : 1) {
        snprintf(path, sizeof path, "%s/%s.%d", dir, name, is_shared ? 0 : rank);
        if (unlink(path) != 0) fail("unlink");
    }
    meet();
    free(buffer);
}

/* 4 KiB at random offsets of an existing file. */
static void pages(const char *name)
{
    char path[PATH_BYTES], page[4096];
    memset(page, 'p', sizeof page);
    snprintf(path, sizeof path, "%s/%s.%d", dir, name, rank);
    int fd = open(path, O_CREAT | O_RDWR, 0644);
    if (fd < 0) fail(path);
    long count = bytes_each / (long)sizeof page;
    for (long n = 0; n < count; n++)
        if (pwrite(fd, page, sizeof page, n * (long)sizeof page) != sizeof page) fail("pwrite");
    uint64_t random = 88172645463325252ULL + (uint64_t)rank;
    long calls = count < 20000 ? count : 20000;
    for (int is_read = 0; is_read < 2; is_read++) {
        begin();
        for (long n = 0; n < calls; n++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            long at = (long)(random % (uint64_t)count) * (long)sizeof page;
            long done = is_read ? pread(fd, page, sizeof page, at) : pwrite(fd, page, sizeof page, at);
            if (done != (long)sizeof page) fail("4 KiB");
        }
        end(name, is_read ? "read" : "write", (double)calls * ranks / 1000, "k/s");
    }
    close(fd);
    unlink(path);
    meet();
}

/* Random 8-byte loads through a mapping of a written file. */
static void loads(const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.%d", dir, name, rank);
    char *buffer = malloc(1 << 20);
    int fd = open(path, O_CREAT | O_RDWR, 0644);
    if (fd < 0) fail(path);
    for (long at = 0; at < bytes_each; at += 1 << 20) {
        for (long place = 0; place < 1 << 20; place += 8) {
            uint64_t word = (uint64_t)(at + place);
            memcpy(buffer + place, &word, sizeof word);
        }
        if (pwrite(fd, buffer, 1 << 20, at) != 1 << 20) fail("pwrite");
    }
    close(fd);
    fd = open(path, O_RDONLY);
    const uint64_t *words = mmap(NULL, (size_t)bytes_each, PROT_READ, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED) fail("mmap");
    uint64_t random = 88172645463325252ULL + (uint64_t)rank, count = (uint64_t)bytes_each / 8;
    const char *phases[] = {"first", "again"};
    for (int pass = 0; pass < 2; pass++) {
        long calls = pass == 0 ? 200000 : 4000000;
        begin();
        for (long n = 0; n < calls; n++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            uint64_t at = random % count;
            if (words[at] != at * 8) {
                errno = EIO;
                fail("other bytes in a mapping");
            }
        }
        end(name, phases[pass], (double)calls * ranks / 1e6, "M/s");
    }
    munmap((void *)words, (size_t)bytes_each);
    close(fd);
    unlink(path);
    free(buffer);
    meet();
}

/* Publishes a directory's names, where only `fsync` does so and the figures are to include that. */
static void publish(const char *at)
{
    if (getenv("LOAD_FSYNC_NAMES") == NULL) return;
    int fd = open(at, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fsync(fd) != 0) fail(at);
    close(fd);
}

/* Creates files as mdtest does, which does not set O_EXCL by default. */
static void names(const char *name, int is_shared, int with_bytes, int flags)
{
    char at[PATH_BYTES - 64], path[PATH_BYTES];
    snprintf(at, sizeof at, "%s/%s.%d", dir, name, is_shared ? 0 : rank);
    if ((!is_shared || rank == 0) && mkdir(at, 0755) != 0) fail(at);
    meet();
    double amount = (double)files_each * ranks / 1000;
    for (int phase = 0; phase < 4; phase++) {
        static const char *phases[] = {"create", "stat", "open", "remove"};
        int whose = phase == 0 || phase == 3 ? rank : (rank + 1) % ranks;
        char theirs[PATH_BYTES - 64];
        snprintf(theirs, sizeof theirs, "%s/%s.%d", dir, name, is_shared ? 0 : whose);
        begin();
        for (long n = 0; n < files_each; n++) {
            struct stat found;
            snprintf(path, sizeof path, "%s/file.%d.%ld", theirs, whose, n);
            int fd = 0;
            switch (phase) {
            case 0:
                fd = open(path, O_CREAT | O_WRONLY | flags, 0644);
                if (fd < 0) fail(path);
                if (with_bytes && write(fd, path, 100) != 100) fail("write");
                if (close(fd) != 0) fail("close");
                break;
            case 1:
                if (stat(path, &found) != 0) fail(path);
                break;
            case 2:
                fd = open(path, O_RDONLY);
                if (fd < 0) fail(path);
                if (with_bytes && read(fd, at + sizeof at - 200, 100) != 100) fail("read");
                close(fd);
                break;
            default:
                if (unlink(path) != 0) fail(path);
            }
        }
        if (phase == 0 || phase == 3) {
            publish(theirs);
            settle();
        }
        end(name, phases[phase], amount, "k/s");
    }
    if ((!is_shared || rank == 0) && rmdir(at) != 0) fail(at);
    meet();
}

static void measure(void)
{
    if (wanted("own_1m")) bytes("own_1m", 1 << 20, 0);
    if (wanted("shared_1m")) bytes("shared_1m", 1 << 20, 1);
    if (wanted("own_47008")) bytes("own_47008", 47008, 0);
    if (wanted("shared_47008")) bytes("shared_47008", 47008, 1);
    if (wanted("random_4k")) pages("random_4k");
    if (wanted("mapped_8b")) loads("mapped_8b");
    if (wanted("empty_own")) names("empty_own", 0, 0, 0);
    if (wanted("empty_shared")) names("empty_shared", 1, 0, 0);
    if (wanted("exclusive_own")) names("exclusive_own", 0, 0, O_EXCL);
    if (wanted("small_own")) names("small_own", 0, 1, 0);
}

static void make_barrier(void)
{
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&together->barrier, &attributes, (unsigned)ranks);
}

/* Runs as one of several processes that were started by themselves. */
static int alone(const char *meeting)
{
    int fd = open(meeting, O_RDWR);
    if (fd < 0) fail(meeting);
    together = mmap(NULL, sizeof *together, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (together == MAP_FAILED) fail("mmap");
    close(fd);
    if (rank == 0) {
        make_barrier();
        atomic_store(&together->is_ready, 1);
    }
    while (!atomic_load(&together->is_ready)) usleep(1000);
    measure();
    return 0;
}

static int forked(void)
{
    together = mmap(NULL, sizeof *together, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    make_barrier();
    pid_t children[RANKS_MAX];
    for (int one = 0; one < ranks; one++) {
        children[one] = fork();
        if (children[one] < 0) fail("fork");
        if (children[one] == 0) {
            rank = one;
            measure();
            fflush(stdout);
            exit(0);
        }
    }
    /* A failing process leaves the others at a barrier: then they are killed. */
    int failed = 0;
    for (int left = ranks; left > 0; left--) {
        int status = 0;
        pid_t gone = wait(&status);
        if (status != 0 && !failed) {
            failed = 1;
            for (int one = 0; one < ranks; one++)
                if (children[one] != gone) kill(children[one], SIGKILL);
        }
    }
    return failed;
}

int main(int count, char **words)
{
    if (count < 5) {
        fprintf(stderr, "usage: load DIR PROCESSES MIB FILES [NAME...]\n");
        return 2;
    }
    dir = words[1];
    ranks = atoi(words[2]);
    bytes_each = atol(words[3]) << 20;
    files_each = atol(words[4]);
    arguments = words + 5;
    argument_count = count - 5;
    if (ranks < 1 || ranks > RANKS_MAX || bytes_each < 1 || files_each < 1) {
        fprintf(stderr, "load: 1 to %d processes, and something to do\n", RANKS_MAX);
        return 2;
    }
    const char *meeting = getenv("LOAD_MEETING"), *number = getenv("LOAD_RANK");
    if (meeting == NULL || number == NULL) return forked();
    rank = atoi(number);
    return alone(meeting);
}
