/* Without flushes, every rank sees what another has written once its call has returned, and later writes win: small
 * writes of all ranks to any part of a dataset, then a barrier, then reads and the next writes. */
#include "check.h"

#define ELEMENTS 20000
#define MOST 3000

static unsigned state;

static unsigned roll(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* Writes or reads `count` elements at `start`. */
static void move(hid_t dset, hsize_t start, hsize_t count, int *values, int write)
{
    hid_t space = H5Dget_space(dset), memory = H5Screate_simple(1, &count, NULL);
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0);
    if (write) {
        CHECK(H5Dwrite(dset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, values) >= 0);
    } else {
        CHECK(H5Dread(dset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, values) >= 0);
    }
    H5Sclose(memory);
    H5Sclose(space);
}

/* Rounds of writes; all ranks know which rank writes where. */
static void rounds(hid_t file, const char *name, hsize_t chunk, int many)
{
    static int want[ELEMENTS], have[ELEMENTS];
    hsize_t dims = ELEMENTS;
    hid_t space = H5Screate_simple(1, &dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (chunk) {
        CHECK(H5Pset_chunk(dcpl, 1, &chunk) >= 0);
    }
    hid_t dset = H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    CHECK(dset >= 0);
    memset(want, 0, sizeof want);
    for (int round = 0; round < many; round++) {
        /* Ranks write disjoint parts, in several calls; the parts overlap those of earlier rounds. */
        int from = (int)roll(ELEMENTS - ranks * MOST > 0 ? ELEMENTS - ranks * MOST : 1);
        int length = (ELEMENTS - from) / ranks, calls = 1 + (int)roll(20);
        length = length > MOST ? MOST : length;
        for (int r = 0; r < ranks; r++) {
            for (int call = 0; call < calls; call++) {
                int at = from + r * length + (int)roll((unsigned)length), end = from + (r + 1) * length;
                int count = 1 + (int)roll((unsigned)(end - at));
                for (int i = 0; i < count; i++) {
                    want[at + i] = round * 1000 + call * 10 + r;
                }
                if (r == rank) {
                    move(dset, (hsize_t)at, (hsize_t)count, want + at, 1);
                }
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (roll(3) == 0) {
            int at = (int)roll(ELEMENTS - 1), count = 1 + (int)roll((unsigned)(ELEMENTS - at));
            at = rank % 2 ? at : 0;
            count = rank % 2 ? count : ELEMENTS;
            move(dset, (hsize_t)at, (hsize_t)count, have, 0);
            CHECK(memcmp(have, want + at, sizeof(int) * (size_t)count) == 0);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    CHECK(H5Dclose(dset) >= 0);
    if (roll(2)) {
        /* No write to a deleted dataset arrives late: a flush would report it. */
        CHECK(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
    }
    CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
    H5Pclose(dcpl);
    H5Sclose(space);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    state = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    hid_t file = create_file(argc > 1 ? argv[1] : "visible.h5");
    check_connector(file);
    for (int i = 0; i < 12; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        rounds(file, name, i % 3 == 0 ? 0 : i % 3 == 1 ? 1024 : ELEMENTS, 40);
    }
    /* Opened again: writes through one handle are seen through the other. */
    hid_t again = H5Freopen(file);
    CHECK(again >= 0);
    rounds(again, "again", 0, 40);
    CHECK(H5Fclose(again) >= 0);
    CHECK(H5Fclose(file) >= 0);
    return end("visible");
}
