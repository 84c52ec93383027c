// Calls the C library on the directory in the first argument and prints the results, which are the same on every file system.
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;
static char buf[1 << 16];
#define SAY(call) do { errno = 0; long r_ = (long)(call); printf("%s = %ld %s\n", #call, r_, r_ < 0 ? strerror(errno) : ""); fflush(stdout); } while (0)

static void streams(void) {
    FILE *f = fopen("stream", "w+");
    fprintf(f, "one %d\n", 1);
    fputs("two\n", f);
    SAY(fseek(f, 0, SEEK_SET));
    SAY(fgets(buf, sizeof buf, f) != NULL);
    fputs(buf, stdout);
    SAY(ftell(f));
    fclose(f);
    f = fopen("stream", "a");
    fputs("three\n", f);
    SAY(ftell(f));
    f = freopen("stream", "r", f);
    while (fgets(buf, sizeof buf, f)) fputs(buf, stdout);
    fclose(f);
    SAY(fopen("nothing", "r") == NULL ? -1 : 0);
    f = fdopen(open("stream", O_RDONLY), "r");
    SAY(fread(buf, 1, 3, f));
    fclose(f);
}

static void offsets(void) {
    int a = open("offsets", O_CREAT | O_RDWR | O_TRUNC, 0640), b = dup(a), c;
    SAY(write(a, "hello world", 11));
    SAY(lseek(b, 0, SEEK_CUR));
    SAY(lseek(b, 6, SEEK_SET));
    SAY(read(a, buf, 100));
    SAY(fcntl(a, F_GETFL) & (O_ACCMODE | O_APPEND));
    SAY(fcntl(a, F_SETFL, O_APPEND));
    SAY(pwrite(b, "!", 1, 0));
    c = fcntl(a, F_DUPFD_CLOEXEC, 100);
    SAY(c);
    SAY(fcntl(c, F_GETFD));
    SAY(dup2(a, 50));
    SAY(close(a));
    SAY(fstat(a, (struct stat *)buf));
    struct stat st;
    SAY(fstat(50, &st));
    printf("size %ld mode %o links %ld\n", (long)st.st_size, st.st_mode, (long)st.st_nlink);
    struct iovec v[2] = {{"ab", 2}, {"cde", 3}};
    SAY(writev(50, v, 2));
    struct iovec r[2] = {{buf, 4}, {buf + 10, 100}};
    SAY(preadv(50, r, 2, 9));
    SAY(ftruncate(50, 5000));
    SAY(lseek(50, 0, SEEK_END));
    SAY(posix_fallocate(50, 6000, 10));
    SAY(pread(50, buf, 10, -1));
    SAY(lseek(50, -1, SEEK_SET));
    SAY(ioctl(50, 0x5401, buf));
    struct pollfd p = {50, POLLIN | POLLOUT, 0};
    SAY(poll(&p, 1, 1000));
    SAY(p.revents);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(50, &set);
    struct timeval t = {5, 0};
    SAY(select(51, &set, NULL, NULL, &t));
    close(50), close(b), close(c);
}

static int each(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    static char all[64][256];
    static int n;
    if (path) snprintf(all[n++], 256, "%s %d %d", path, kind, at->level);
    else {
        qsort(all, n, 256, (int (*)(const void *, const void *))strcmp);
        for (int i = 0; i < n; i++) puts(all[i]);
    }
    return 0;
}

static void names(void) {
    char where[4096];
    SAY(mkdir("d", 0755));
    SAY(mkdir("d", 0755));
    SAY(mkdir("d/e", 0700));
    SAY(close(open("d/e/f", O_CREAT | O_WRONLY, 0600)));
    SAY(open("d/e/f", O_CREAT | O_EXCL | O_WRONLY, 0600));
    SAY(open("d", O_WRONLY));
    SAY(open("d/e/f/g", O_RDONLY));
    SAY(symlink("e/f", "d/l"));
    SAY(symlink("loop", "loop"));
    SAY(open("loop", O_RDONLY));
    SAY(open("d/l", O_RDONLY | O_NOFOLLOW));
    SAY(readlink("d/l", buf, sizeof buf));
    SAY(readlink("d", buf, sizeof buf));
    SAY(link("d/e/f", "d/h"));
    SAY(rename("d", "d/e/x"));
    SAY(rename("d/e", "d/h"));
    SAY(rmdir("d"));
    SAY(unlink("d"));
    SAY(rmdir("d/h"));
    SAY(renameat2(AT_FDCWD, "d/h", AT_FDCWD, "d/l", RENAME_NOREPLACE));
    SAY(chdir("d/e"));
    SAY(strcmp(strrchr(getcwd(where, sizeof where), '/'), "/e"));
    SAY(access("../l", F_OK));
    SAY(realpath("../l", where) == NULL);
    puts(strrchr(where, '/'));
    int dir = open("..", O_RDONLY | O_DIRECTORY);
    SAY(fchdir(dir));
    SAY(faccessat(dir, "e/f", R_OK, 0));
    SAY(close(openat(dir, "new", O_CREAT | O_RDWR, 0644)));
    SAY(unlinkat(dir, "new", 0));
    SAY(fsync(dir));
    close(dir);
    SAY(chdir(".."));
    memset(where, 'n', 300), where[300] = 0;
    SAY(open(where, O_CREAT | O_RDWR, 0644));
    memset(where, '/', sizeof where), where[sizeof where - 1] = 0;
    SAY(open(where, O_RDONLY) < 0 ? -1 : 0);
    SAY(nftw("d", each, 10, FTW_PHYS));
    each(NULL, NULL, 0, NULL);
    glob_t g;
    SAY(glob("d/*", 0, NULL, &g));
    for (size_t i = 0; i < g.gl_pathc; i++) puts(g.gl_pathv[i]);
    struct dirent **list;
    int n = scandir("d", &list, NULL, alphasort);
    for (int i = 0; i < n; i++) printf("%s %d\n", list[i]->d_name, list[i]->d_type);
    struct timespec times[2] = {{1000, 5}, {2000, 6}};
    SAY(utimensat(AT_FDCWD, "d/h", times, 0));
    struct stat st;
    SAY(stat("d/h", &st));
    printf("%ld.%09ld %ld %ld\n", (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long)st.st_nlink, (long)st.st_atim.tv_sec);
    SAY(chmod("d/h", 0400));
    SAY(truncate("d/h", 77));
    SAY(setxattr("d/h", "user.a", "value", 5, XATTR_CREATE));
    SAY(setxattr("d/h", "user.a", "value", 5, XATTR_CREATE));
    SAY(getxattr("d/h", "user.a", buf, 2));
    SAY(listxattr("d/h", buf, sizeof buf));
    SAY(getxattr("d/h", "user.b", buf, 2));
    int t = open(".", O_TMPFILE | O_RDWR, 0600);
    SAY(write(t, "x", 1));
    snprintf(where, sizeof where, "/proc/self/fd/%d", t);
    SAY(linkat(AT_FDCWD, where, AT_FDCWD, "d/placed", AT_SYMLINK_FOLLOW));
    close(t);
    SAY(unlink("d/placed"));
    int open_file = open("d/e/f", O_RDWR);
    unlink("d/e/f"), unlink("d/h");
    SAY(write(open_file, "still", 5));
    SAY(pread(open_file, buf, 10, 0));
    SAY(fstat(open_file, &st));
    SAY(st.st_nlink);
    close(open_file);
}

static void copies(void) {
    int a = open("a", O_CREAT | O_RDWR, 0644), b = open("b", O_CREAT | O_RDWR, 0644), p[2];
    for (int i = 0; i < 20000; i++) buf[i] = i * 7;
    SAY(write(a, buf, 20000));
    off_t from = 100, to = 50;
    SAY(copy_file_range(a, &from, b, &to, 10000, 0));
    SAY(from + to);
    SAY(pipe(p));
    SAY(lseek(a, 0, SEEK_SET));
    SAY(sendfile(p[1], a, NULL, 5000));
    SAY(lseek(a, 0, SEEK_CUR));
    SAY(read(p[0], buf, 10000));
    char *m = mmap(NULL, 30000, PROT_READ | PROT_WRITE, MAP_PRIVATE, a, 4096);
    SAY(m == MAP_FAILED);
    SAY(m[0] == (char)(4096 * 7));
    m[0] = 1;
    SAY(pread(a, buf, 1, 4096));
    SAY(buf[0] == (char)(4096 * 7));
    munmap(m, 30000);
    m = mmap(NULL, 20000, PROT_READ, MAP_SHARED, a, 0);
    SAY(m[19999] == (char)(19999 * 7));
    SAY(flock(a, LOCK_EX));
    int other = open("a", O_RDWR);
    SAY(flock(other, LOCK_EX | LOCK_NB));
    SAY(flock(a, LOCK_UN));
    SAY(flock(other, LOCK_EX | LOCK_NB));
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 10};
    SAY(fcntl(b, F_SETLK, &l));
    if (fork() == 0) {
        SAY(fcntl(b, F_SETLK, &l));
        SAY(fcntl(b, F_GETLK, &l));
        SAY(l.l_pid == getppid());
        _exit(0);
    }
    wait(NULL);
    struct aiocb io = {.aio_fildes = a, .aio_buf = buf, .aio_nbytes = 1000, .aio_offset = 3};
    SAY(aio_read(&io));
    const struct aiocb *all[] = {&io};
    aio_suspend(all, 1, NULL);
    SAY(aio_return(&io));
}

static int shared;
static void *work(void *number) {
    char name[20], text[100];
    snprintf(name, sizeof name, "thread%ld", (long)number);
    for (int i = 0; i < 50; i++) {
        int f = open(name, O_CREAT | O_WRONLY | O_APPEND, 0644);
        if (f < 0 || write(f, name, 7) != 7 || close(f)) puts("failed");
        snprintf(text, sizeof text, "%07ld\n", (long)number * 1000 + i);
        if (write(shared, text, 8) != 8) puts("failed");
    }
    return NULL;
}

static void threads(void) {
    pthread_t t[4];
    shared = open("shared", O_CREAT | O_RDWR | O_TRUNC, 0644);
    for (long i = 0; i < 4; i++) pthread_create(&t[i], NULL, work, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    struct stat st;
    SAY(fstat(shared, &st));
    SAY(st.st_size);
    SAY(stat("thread3", &st));
    SAY(st.st_size);
}

static void children(void) {
    int f = open("children", O_CREAT | O_RDWR | O_TRUNC, 0644), status;
    SAY(write(f, "parent\n", 7));
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            write(f, "child\n", 6);
            _exit(7);
        } else wait(&status);
    SAY(WEXITSTATUS(status));
    SAY(lseek(f, 0, SEEK_CUR));
    if (vfork() == 0) {
        dup2(f, 1);
        execlp("sh", "sh", "-c", "echo from vfork", NULL);
        _exit(1);
    }
    wait(&status);
    SAY(WEXITSTATUS(status));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "stream", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, f, 1);
    char *argv[] = {"cat", NULL};
    pid_t pid;
    SAY(posix_spawnp(&pid, "cat", &actions, NULL, argv, environ));
    waitpid(pid, &status, 0);
    SAY(WEXITSTATUS(status));
    SAY(fcntl(0, F_GETFD) >= 0);
    SAY(system("echo from system >> children; pwd | sed 's:.*/::'") < 0);
    SAY(execl("/nothing", "nothing", NULL));
    SAY(pread(f, buf, sizeof buf, 0));
    fwrite(buf, 1, pread(f, buf, sizeof buf, 0), stdout);
    FILE *p = popen("cat children | wc -l", "r");
    fgets(buf, 100, p);
    fputs(buf, stdout);
    pclose(p);
}

static int log_file;
static volatile int heard;
static void handler(int number) {
    (void)number;
    heard++;
    write(log_file, "tick\n", 5);
}

static void signals(void) {
    log_file = open("log", O_CREAT | O_WRONLY | O_APPEND, 0644);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGALRM, NULL, &old);
    SAY(old.sa_handler == handler);
    struct itimerval every = {{0, 500}, {0, 500}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    int f = open("busy", O_CREAT | O_RDWR, 0644);
    while (heard < 100) {
        char *text = malloc(100);
        snprintf(text, 100, "%d", heard);
        if (pwrite(f, text, 3, 0) != 3) puts("failed");
        if (pwrite(log_file, "tock\n", 5, 0) != 5) puts("failed");
        free(text);
    }
    setitimer(ITIMER_REAL, &none, NULL);
    struct stat st;
    fstat(log_file, &st);
    SAY(st.st_size % 5);
    SAY(st.st_size >= 1000);
}

int main(int argc, char **argv) {
    if (argc < 2 || chdir(argv[1])) return perror("chdir"), 1;
    puts("# streams"), streams();
    puts("# offsets"), offsets();
    puts("# names"), names();
    puts("# copies"), copies();
    puts("# threads"), threads();
    puts("# children"), children();
    puts("# signals"), signals();
    return 0;
}
