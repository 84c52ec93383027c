/* The I/O of three well-known parallel codes, and three tests of HDF5 itself: `kernels KERNEL FILE [SIZE] [--independent]`.
 *
 * The program is the same for native HDF5 and for Cenote: the environment selects one. Rank 0 prints one line: name, figure,
 * unit. All times are from the first rank's start to the last one's end, including the opening and closing of the file where
 * a program would have them. Samples of what is read are checked.
 *
 *   vpic      writing 8 one-dimensional variables, one shared file, SIZE MiB a rank and variable (VPIC-IO)
 *   bdcats    reading them, each rank its part (BD-CATS-IO)
 *   boss      SIZE small datasets picked from 64 files, written to one (H5Boss); --independent: a rank creates only its own
 *   rows      rows of 47,008 bytes of one dataset, in turns
 *   columns   columns of 4-byte elements of one dataset, in turns
 *   visit     opening a file of SIZE objects and visiting all (one rank)
 *   overhead  reading the same 4 KiB of one dataset repeatedly (one rank)
 */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARIABLES = 8, SOURCES = 64, ROW = 47008, COLUMN_ROWS = 4096, COLUMNS = 256 };

static int rank, ranks, is_independent;

static void fail(const char *what) {
    fprintf(stderr, "rank %d: %s failed\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define TRY(call) do { if ((call) < 0) fail(#call); } while (0)
static hid_t id(hid_t made, const char *what) { if (made < 0) fail(what); return made; }
#define ID(call) id(call, #call)

/* Seconds between this and the last rank's `stop`. */
static double start(void) { MPI_Barrier(MPI_COMM_WORLD); return MPI_Wtime(); }
static double stop(double began) { MPI_Barrier(MPI_COMM_WORLD); return MPI_Wtime() - began; }
static void say(const char *what, double figure, const char *unit) {
    if (rank == 0) printf("%s %.6g %s\n", what, figure, unit);
}

static hid_t together(void) {
    hid_t fapl = ID(H5Pcreate(H5P_FILE_ACCESS));
    if (ranks > 1 && !is_independent) TRY(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL));
    return fapl;
}
static hid_t create(const char *name, hid_t fapl) {
    if (!is_independent) return ID(H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, fapl));
    hid_t file = rank == 0 ? ID(H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, fapl)) : -1;
    MPI_Barrier(MPI_COMM_WORLD);
    return rank == 0 ? file : ID(H5Fopen(name, H5F_ACC_RDWR, fapl));
}
static hid_t line(hsize_t n) { return ID(H5Screate_simple(1, &n, NULL)); }

static void vpic(const char *name, hsize_t mib) {
    hsize_t mine = mib << 18, all = mine * ranks, at = mine * rank;
    float *data = malloc(mine * 4);
    for (hsize_t i = 0; i < mine; i++) data[i] = (float)((at + i) % 16777213);
    double began = start();
    hid_t fapl = together(), file = create(name, fapl), space = line(all), memory = line(mine);
    TRY(H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &mine, NULL));
    for (int v = 0; v < VARIABLES; v++) {
        char variable[16];
        snprintf(variable, sizeof variable, "v%d", v);
        hid_t set = ID(H5Dcreate2(file, variable, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        TRY(H5Dwrite(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, data));
        TRY(H5Dclose(set));
    }
    TRY(H5Fclose(file));
    say("vpic", (double)mib * VARIABLES * ranks / stop(began), "MiB/s");
    /* The upper bound: the same bytes copied within memory by all ranks. */
    float *copy = malloc(mine * 4);
    memset(copy, 1, mine * 4);
    began = start();
    for (int v = 0; v < VARIABLES; v++) { memcpy(copy, data, mine * 4); __asm__ volatile("" ::"r"(copy) : "memory"); }
    say("memcpy", (double)mib * VARIABLES * ranks / stop(began), "MiB/s");
}

static void bdcats(const char *name, hsize_t mib) {
    hsize_t mine = mib << 18, at = mine * ((rank + 1) % ranks); /* what another rank has written */
    float *data = malloc(mine * 4);
    memset(data, 1, mine * 4);
    double began = start();
    hid_t file = ID(H5Fopen(name, H5F_ACC_RDONLY, together())), memory = line(mine);
    for (int v = 0; v < VARIABLES; v++) {
        char variable[16];
        snprintf(variable, sizeof variable, "v%d", v);
        hid_t set = ID(H5Dopen2(file, variable, H5P_DEFAULT)), space = ID(H5Dget_space(set));
        TRY(H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &mine, NULL));
        TRY(H5Dread(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, data));
        TRY(H5Dclose(set));
    }
    TRY(H5Fclose(file));
    double took = stop(began);
    for (hsize_t i = 0; i < mine; i += 1021) if (data[i] != (float)((at + i) % 16777213)) fail("a look at what was read");
    say("bdcats", (double)mib * VARIABLES * ranks / took, "MiB/s");
}

static void boss(const char *name, int sets) {
    enum { MOST = 2048 };
    float *data = calloc(MOST, 4);
    char path[4096], set_name[32];
    /* Not measured: creates the source files. */
    for (int s = rank; s < SOURCES; s += ranks) {
        snprintf(path, sizeof path, "%s.%d", name, s);
        hid_t file = ID(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
        for (int i = s; i < sets; i += SOURCES) {
            hid_t space = line(64 + i * 37 % (MOST - 64));
            snprintf(set_name, sizeof set_name, "fiber%05d", i);
            for (int k = 0; k < MOST; k++) data[k] = (float)(i + k);
            hid_t set = ID(H5Dcreate2(file, set_name, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
            TRY(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
            TRY(H5Dclose(set)); TRY(H5Sclose(space));
        }
        TRY(H5Fclose(file));
    }
    /* Datasets are picked into memory before the clock starts, since only the writing is compared. */
    double creating = 0, began = start();
    hid_t file = create(name, together());
    for (int i = 0; i < sets; i++) {
        int is_mine = i % ranks == rank;
        if (is_independent && !is_mine) continue;
        hid_t space = line(64 + i * 37 % (MOST - 64));
        snprintf(set_name, sizeof set_name, "fiber%05d", i);
        double before = MPI_Wtime();
        hid_t set = ID(H5Dcreate2(file, set_name, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        creating += MPI_Wtime() - before;
        if (is_mine) {
            for (int k = 0; k < MOST; k++) data[k] = (float)(i + k);
            TRY(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
        }
        TRY(H5Dclose(set)); TRY(H5Sclose(space));
    }
    TRY(H5Fclose(file));
    say("boss", sets / stop(began), "datasets/s");
    say("create", sets / creating * (is_independent ? ranks : 1), "datasets/s");
    if (rank == 0) {
        file = ID(H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT));
        for (int i = 0; i < sets; i += 97) {
            snprintf(set_name, sizeof set_name, "fiber%05d", i);
            hid_t set = ID(H5Dopen2(file, set_name, H5P_DEFAULT));
            TRY(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
            if (data[63] != (float)(i + 63)) fail("a look at what was read");
            TRY(H5Dclose(set));
        }
        TRY(H5Fclose(file));
    }
}

/* Each rank writes every ranks-th row (or column) of one dataset with a separate call, then reads them. */
static void strided(const char *name, const char *what, hsize_t rows, hsize_t columns, int by_column, hid_t type, size_t size) {
    hsize_t dims[2] = {rows, columns}, at[2] = {0, 0}, count[2] = {by_column ? rows : 1, by_column ? 1 : columns};
    hsize_t calls = by_column ? columns : rows, elements = count[0] * count[1];
    char *data = malloc(elements * size), figure[32];
    hid_t file = create(name, together()), space = ID(H5Screate_simple(2, dims, NULL)), memory = line(elements);
    hid_t set = ID(H5Dcreate2(file, "x", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    for (int is_read = 0; is_read < 2; is_read++) {
        double began = start();
        for (hsize_t c = rank; c < calls; c += ranks) {
            at[by_column] = c;
            TRY(H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, count, NULL));
            if (is_read) {
                TRY(H5Dread(set, type, memory, space, H5P_DEFAULT, data));
                if (data[0] != (char)c || data[elements * size - 1] != (char)c) fail("a look at what was read");
            } else {
                memset(data, (char)c, elements * size);
                TRY(H5Dwrite(set, type, memory, space, H5P_DEFAULT, data));
            }
        }
        if (!is_read) TRY(H5Fflush(file, H5F_SCOPE_GLOBAL));
        snprintf(figure, sizeof figure, "%s_%s", what, is_read ? "read" : "write");
        say(figure, (double)calls * elements * size / stop(began) / 1048576, "MiB/s");
    }
    TRY(H5Dclose(set)); TRY(H5Fclose(file));
}

static herr_t seen(hid_t object, const char *name, const H5O_info2_t *info, void *count) {
    (void)object; (void)name;
    *(long *)count += info->rc > 0;
    return 0;
}
static void visit(const char *name, int objects) {
    hid_t file = ID(H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)), space = line(4);
    int groups = objects / 100;
    for (int g = 0; g < groups; g++) {
        char group_name[16];
        snprintf(group_name, sizeof group_name, "g%05d", g);
        hid_t group = ID(H5Gcreate2(file, group_name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        for (int i = 0; i < 99; i++) {
            char set_name[16];
            snprintf(set_name, sizeof set_name, "d%02d", i);
            TRY(H5Dclose(ID(H5Dcreate2(group, set_name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT))));
        }
        TRY(H5Gclose(group));
    }
    TRY(H5Fclose(file));
    long count = 0;
    double began = start();
    file = ID(H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT));
    TRY(H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_NATIVE, seen, &count, H5O_INFO_BASIC));
    TRY(H5Fclose(file));
    double took = stop(began);
    if (count != groups * 100 + 1) fail("counting what was visited");
    say("visit", count / took, "objects/s");
}

static void overhead(const char *name) {
    enum { CALLS = 100000 };
    static char data[4096];
    hid_t file = ID(H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)), space = line(sizeof data);
    hid_t set = ID(H5Dcreate2(file, "x", H5T_NATIVE_CHAR, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    memset(data, 7, sizeof data);
    TRY(H5Dwrite(set, H5T_NATIVE_CHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
    TRY(H5Fflush(file, H5F_SCOPE_GLOBAL));
    double began = start();
    for (int i = 0; i < CALLS; i++) TRY(H5Dread(set, H5T_NATIVE_CHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
    say("overhead", stop(began) / CALLS * 1e6, "us");
    if (data[4095] != 7) fail("a look at what was read");
    TRY(H5Dclose(set)); TRY(H5Fclose(file));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3) { if (rank == 0) fprintf(stderr, "usage: kernels KERNEL FILE [SIZE] [--independent]\n"); MPI_Abort(MPI_COMM_WORLD, 2); }
    const char *kernel = argv[1], *name = argv[2];
    int size = argc > 3 ? atoi(argv[3]) : 0;
    is_independent = strcmp(argv[argc - 1], "--independent") == 0;
    if (!strcmp(kernel, "vpic")) vpic(name, size);
    else if (!strcmp(kernel, "bdcats")) bdcats(name, size);
    else if (!strcmp(kernel, "boss")) boss(name, size);
    else if (!strcmp(kernel, "rows")) strided(name, "rows", size, ROW / 4, 0, H5T_NATIVE_INT, 4);
    else if (!strcmp(kernel, "columns")) strided(name, "columns", COLUMN_ROWS, COLUMNS, 1, H5T_NATIVE_INT, 4);
    else if (!strcmp(kernel, "visit")) visit(name, size);
    else if (!strcmp(kernel, "overhead")) overhead(name);
    else fail("finding that kernel");
    MPI_Finalize();
    return 0;
}
