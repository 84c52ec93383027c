/* Usual operations of C programs; prints results as JSON: versions, then one result per check. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static herr_t count(hid_t id, const char *name, const H5O_info2_t *info, void *sum)
{
    (void)id;
    *(size_t *)sum += strlen(name) * (info->type + 3);
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    unsigned major, minor, release;
    double data[20][30], have[20][30], sum = 0;
    for (int i = 0; i < 600; i++) {
        data[i / 30][i % 30] = i * 0.5;
    }
    hsize_t dims[2] = {20, 30}, more[2] = {25, 30}, max[2] = {H5S_UNLIMITED, 30}, chunk[2] = {6, 7};
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(file >= 0);
    hid_t space = H5Screate_simple(2, dims, max), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 2, chunk);
    H5Pset_deflate(dcpl, 4);
    hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dset = H5Dcreate2(group, "data", H5T_STD_I32BE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    CHECK(dset >= 0 && H5Dwrite(dset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    CHECK(H5Dset_extent(dset, more) >= 0);
    hid_t scalar = H5Screate(H5S_SCALAR);
    hid_t attr = H5Acreate2(dset, "pi", H5T_IEEE_F32LE, scalar, H5P_DEFAULT, H5P_DEFAULT);
    double pi = 3.25;
    CHECK(attr >= 0 && H5Awrite(attr, H5T_NATIVE_DOUBLE, &pi) >= 0);
    H5Aclose(attr);
    CHECK(H5Lcreate_soft("/group/data", file, "soft", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(H5Ocopy(file, "group", file, "copy", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    hid_t type = H5Tcreate(H5T_COMPOUND, 16);
    H5Tinsert(type, "a", 0, H5T_NATIVE_INT);
    H5Tinsert(type, "b", 8, H5T_NATIVE_DOUBLE);
    CHECK(H5Tcommit2(file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Tclose(type);
    H5Dclose(dset);
    H5Gclose(group);
    CHECK(H5Fclose(file) >= 0);

    file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    CHECK(file >= 0);
    dset = H5Dopen2(file, "copy/data", H5P_DEFAULT);
    hid_t now = H5Dget_space(dset), memory = H5Screate_simple(2, dims, NULL);
    hsize_t start[2] = {2, 1}, stride[2] = {3, 2}, blocks[2] = {6, 10}, size[2];
    H5Sget_simple_extent_dims(now, size, NULL);
    H5Sselect_hyperslab(now, H5S_SELECT_SET, start, stride, blocks, NULL);
    H5Sselect_hyperslab(memory, H5S_SELECT_SET, start, stride, blocks, NULL);
    memset(have, 0, sizeof have);
    CHECK(H5Dread(dset, H5T_NATIVE_DOUBLE, memory, now, H5P_DEFAULT, have) >= 0);
    for (int i = 0; i < 600; i++) {
        sum += have[i / 30][i % 30] * (i + 1);
    }
    attr = H5Aopen_by_name(file, "soft", "pi", H5P_DEFAULT, H5P_DEFAULT);
    CHECK(attr >= 0 && H5Aread(attr, H5T_NATIVE_DOUBLE, &pi) >= 0);
    H5Aclose(attr);
    size_t visited = 0;
    CHECK(H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_INC, count, &visited, H5O_INFO_BASIC) >= 0);
    char connector[32] = "";
    H5VLget_connector_name(file, connector, sizeof connector);
    H5Sclose(memory);
    H5Sclose(now);
    H5Dclose(dset);
    CHECK(H5Fclose(file) >= 0);
    H5Pclose(dcpl);
    H5Sclose(scalar);
    H5Sclose(space);
    H5get_libversion(&major, &minor, &release);
    printf("{\"versions\": {\"client\": \"C library\", \"hdf5\": \"%u.%u.%u\"}, \"stub\": %s, ", major, minor, release,
           strcmp(connector, "cenote") == 0 ? "true" : "false");
    printf("\"seen\": {\"sum\": %.1f, \"extent\": [%d, %d], \"attribute\": %.2f, \"visited\": %zu}}\n", sum, (int)size[0],
           (int)size[1], pi, visited);
    return 0;
}
