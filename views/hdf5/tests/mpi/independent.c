/* With CENOTE_HDF5_MPI=independent every rank makes its own objects at any time; native HDF5 cannot do this. */
#include "check.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const char *name = argc > 1 ? argv[1] : "independent.h5";
    hid_t file = create_file(name);
    check_connector(file);
    hsize_t length = 100, many = (hsize_t)(5 + 3 * rank);
    hid_t space = H5Screate_simple(1, &length, NULL);
    char path[64];
    /* The number of objects differs between ranks. */
    for (hsize_t i = 0; i < many; i++) {
        int data[100];
        for (int k = 0; k < 100; k++) {
            data[k] = rank * 10000 + (int)i * 100 + k;
        }
        snprintf(path, sizeof path, "rank %d, %d", rank, (int)i);
        hid_t dset = H5Dcreate2(file, path, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        CHECK(dset >= 0);
        CHECK(H5Dwrite(dset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
        hid_t attr = H5Acreate2(dset, "rank", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
        CHECK(attr >= 0 && H5Awrite(attr, H5T_NATIVE_INT, data) >= 0);
        H5Aclose(attr);
        H5Dclose(dset);
    }
    CHECK(H5Fclose(file) >= 0);
    file = open_file(name, H5F_ACC_RDONLY);
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < 5 + 3 * r; i++) {
            int data[100];
            snprintf(path, sizeof path, "rank %d, %d", r, i);
            hid_t dset = H5Dopen2(file, path, H5P_DEFAULT);
            CHECK(dset >= 0);
            CHECK(H5Dread(dset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
            CHECK(data[99] == r * 10000 + i * 100 + 99);
            H5Dclose(dset);
        }
    }
    H5Sclose(space);
    CHECK(H5Fclose(file) >= 0);
    return end("independent");
}
