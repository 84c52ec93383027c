/* Common start of all programs here: MPI, a file opened by all ranks, and checks that end the program. */
#ifndef CHECK_H
#define CHECK_H

#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends all ranks if a condition does not hold. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #condition);         \
            H5Eprint2(H5E_DEFAULT, stderr);                                                        \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

/* Evaluates an expression without HDF5 printing its failure. */
#define QUIETLY(result, expression)                                                                \
    do {                                                                                           \
        H5E_auto2_t print_;                                                                        \
        void *data_;                                                                               \
        H5Eget_auto2(H5E_DEFAULT, &print_, &data_);                                                \
        H5Eset_auto2(H5E_DEFAULT, NULL, NULL);                                                     \
        (result) = (expression);                                                                   \
        H5Eset_auto2(H5E_DEFAULT, print_, data_);                                                  \
    } while (0)

static int rank, ranks;

/* Access properties of a file that all ranks open together. */
static inline hid_t together(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
    return fapl;
}

static inline hid_t create_file(const char *name)
{
    hid_t fapl = together();
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    CHECK(file >= 0);
    H5Pclose(fapl);
    return file;
}

static inline hid_t open_file(const char *name, unsigned flags)
{
    hid_t fapl = together();
    hid_t file = H5Fopen(name, flags, fapl);
    CHECK(file >= 0);
    H5Pclose(fapl);
    return file;
}

/* Transfer properties: collective or independent. */
static inline hid_t transfer(H5FD_mpio_xfer_t mode)
{
    hid_t dxpl = H5Pcreate(H5P_DATASET_XFER);
    CHECK(H5Pset_dxpl_mpio(dxpl, mode) >= 0);
    return dxpl;
}

/* With CENOTE_CHECK set the file must be one of the cenote connector, else a native one. */
static inline void check_connector(hid_t file)
{
    char name[64] = "";
    CHECK(H5VLget_connector_name(file, name, sizeof name) > 0);
    CHECK((strcmp(name, "cenote") == 0) == (getenv("CENOTE_CHECK") != NULL));
}

static inline void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static inline int end(const char *what)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s: right with %d ranks\n", what, ranks);
    }
    MPI_Finalize();
    return 0;
}

#endif
