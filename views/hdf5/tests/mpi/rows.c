/* All ranks make a file and datasets, extend one, write rows collectively and independently, and read each other's. */
#include "check.h"

#define COLUMNS 1000

static void fill(int *row, int number)
{
    for (int i = 0; i < COLUMNS; i++) {
        row[i] = number * COLUMNS + i;
    }
}

/* Writes or checks row `number`. */
static void row(hid_t dset, int number, hid_t dxpl, int write)
{
    int want[COLUMNS], have[COLUMNS];
    hsize_t start[2] = {(hsize_t)number, 0}, count[2] = {1, COLUMNS}, length = COLUMNS;
    hid_t space = H5Dget_space(dset), memory = H5Screate_simple(1, &length, NULL);
    fill(want, number);
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0);
    if (write) {
        CHECK(H5Dwrite(dset, H5T_NATIVE_INT, memory, space, dxpl, want) >= 0);
    } else {
        CHECK(H5Dread(dset, H5T_NATIVE_INT, memory, space, dxpl, have) >= 0);
        CHECK(memcmp(want, have, sizeof want) == 0);
    }
    H5Sclose(memory);
    H5Sclose(space);
}

/* A dataset with a row for each rank, then twice as many rows; `filter` compresses chunks that ranks share. */
static void rows(hid_t file, const char *name, int chunk_rows, int filter, H5FD_mpio_xfer_t mode)
{
    hsize_t dims[2] = {(hsize_t)ranks, COLUMNS}, max[2] = {H5S_UNLIMITED, COLUMNS};
    hsize_t chunk[2] = {(hsize_t)chunk_rows, COLUMNS / 2}, now[2];
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), dxpl = transfer(mode);
    hid_t space = H5Screate_simple(2, dims, chunk_rows ? max : NULL);
    if (chunk_rows) {
        CHECK(H5Pset_chunk(dcpl, 2, chunk) >= 0);
    }
    if (filter) {
        CHECK(H5Pset_deflate(dcpl, 3) >= 0);
    }
    hid_t dset = H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    CHECK(dset >= 0);
    row(dset, rank, dxpl, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    row(dset, (rank + 1) % ranks, dxpl, 0);
    if (chunk_rows) {
        /* However far another rank is ahead, this rank sees the extent that its own calls have set. */
        for (int step = 2; step <= 4; step++) {
            dims[0] = (hsize_t)(ranks * step);
            CHECK(H5Dset_extent(dset, dims) >= 0);
            hid_t extended = H5Dget_space(dset);
            CHECK(H5Sget_simple_extent_dims(extended, now, NULL) == 2 && now[0] == dims[0]);
            H5Sclose(extended);
            row(dset, ranks * (step - 1) + rank, dxpl, 1);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        row(dset, ranks * 3 + (rank + 1) % ranks, dxpl, 0);
    }
    H5D_mpio_actual_io_mode_t actual;
    uint32_t local, global;
    CHECK(H5Pget_mpio_actual_io_mode(dxpl, &actual) >= 0);
    CHECK(H5Pget_mpio_no_collective_cause(dxpl, &local, &global) >= 0);
    if (mode == H5FD_MPIO_COLLECTIVE) {
        CHECK(actual == (chunk_rows ? H5D_MPIO_CHUNK_COLLECTIVE : H5D_MPIO_CONTIGUOUS_COLLECTIVE));
        CHECK(local == H5D_MPIO_COLLECTIVE && global == H5D_MPIO_COLLECTIVE);
    } else {
        CHECK(actual == H5D_MPIO_NO_COLLECTIVE);
    }
    H5Dclose(dset);
    H5Sclose(space);
    H5Pclose(dxpl);
    H5Pclose(dcpl);
}

/* Only rank 0 writes elements and only the last rank reads any; the others take part with empty selections. */
static void nothing(hid_t file)
{
    hsize_t length = 10;
    int data[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, have[10];
    hid_t space = H5Screate_simple(1, &length, NULL), none = H5Scopy(space), dxpl = transfer(H5FD_MPIO_COLLECTIVE);
    H5Sselect_none(none);
    hid_t dset = H5Dcreate2(file, "few", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t mine = rank == 0 ? space : none;
    CHECK(H5Dwrite(dset, H5T_NATIVE_INT, mine, mine, dxpl, rank == 0 ? data : NULL) >= 0);
    MPI_Barrier(MPI_COMM_WORLD);
    mine = rank == ranks - 1 ? space : none;
    CHECK(H5Dread(dset, H5T_NATIVE_INT, mine, mine, dxpl, have) >= 0);
    CHECK(rank != ranks - 1 || memcmp(data, have, sizeof data) == 0);
    H5Dclose(dset);
    H5Sclose(none);
    H5Sclose(space);
    H5Pclose(dxpl);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const char *name = argc > 1 ? argv[1] : "rows.h5";
    hid_t file = create_file(name);
    check_connector(file);
    rows(file, "contiguous", 0, 0, H5FD_MPIO_COLLECTIVE);
    rows(file, "contiguous, independent", 0, 0, H5FD_MPIO_INDEPENDENT);
    rows(file, "chunked", 1, 0, H5FD_MPIO_COLLECTIVE);
    rows(file, "chunked, independent", 3, 0, H5FD_MPIO_INDEPENDENT);
    rows(file, "compressed", 1, 1, H5FD_MPIO_COLLECTIVE);
    rows(file, "compressed, shared chunks", 3, 1, H5FD_MPIO_COLLECTIVE);
    nothing(file);
    CHECK(H5Fclose(file) >= 0);
    /* After all have closed the file, every rank sees everything. */
    file = open_file(name, H5F_ACC_RDONLY);
    hid_t dxpl = transfer(H5FD_MPIO_INDEPENDENT), dset = H5Dopen2(file, "compressed, shared chunks", H5P_DEFAULT);
    for (int i = 0; i < 4 * ranks; i++) {
        row(dset, i, dxpl, 0);
    }
    H5Dclose(dset);
    H5Pclose(dxpl);
    CHECK(H5Fclose(file) >= 0);
    return end("rows");
}
