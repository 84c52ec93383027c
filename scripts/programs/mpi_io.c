/* MPI-IO as parallel codes use it: mpi_io DIRECTORY. Each rank checks what it reads; the files are for a comparison. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 500, INTS = 47, LINES = 50, REQUESTS = 8, PIECE_BYTES = 4096, SIZE_BYTES = 3 << 20 };

static int rank, ranks;
static const char *dir;

static void check(int code, const char *what)
{
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int len;
    MPI_Error_string(code, text, &len);
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define CHECK(call) check(call, #call)

static void expect(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static MPI_File opened(const char *name)
{
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    return file;
}

/* Interleaved blocks by a file view: collective (two phases), and independent (data sieving: read, modify, write under a lock). */
static void views(void)
{
    static int mine[BLOCKS * INTS], back[BLOCKS * INTS];
    int count = BLOCKS * INTS;
    MPI_Datatype every;
    MPI_File file = opened("view");
    for (int i = 0; i < count; i++)
        mine[i] = rank * 1000003 + i;
    CHECK(MPI_Type_vector(BLOCKS, INTS, INTS * ranks, MPI_INT, &every));
    CHECK(MPI_Type_commit(&every));
    CHECK(MPI_File_set_view(file, (MPI_Offset)rank * INTS * sizeof(int), MPI_INT, every, "native", MPI_INFO_NULL));
    CHECK(MPI_File_write_all(file, mine, count, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_sync(file));
    CHECK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    CHECK(MPI_File_read_all(file, back, count, MPI_INT, MPI_STATUS_IGNORE));
    expect(memcmp(mine, back, sizeof mine) == 0, "read_all has other bytes than write_all wrote");
    CHECK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    for (int i = 0; i < count; i++)
        mine[i] += 7;
    CHECK(MPI_File_write(file, mine, count, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_close(&file));
    MPI_Type_free(&every);
}

/* Lines by a file pointer shared by all ranks: ordered, and in any order (in atomic mode). */
static void shared_pointers(void)
{
    char line[32];
    MPI_File ordered = opened("ordered");
    for (int i = 0; i < LINES; i++) {
        int len = snprintf(line, sizeof line, "rank %d line %d\n", rank, i);
        CHECK(MPI_File_write_ordered(ordered, line, len, MPI_CHAR, MPI_STATUS_IGNORE));
    }
    CHECK(MPI_File_close(&ordered));
    MPI_File any = opened("any-order");
    CHECK(MPI_File_set_atomicity(any, 1));
    for (int i = 0; i < LINES; i++) {
        int len = snprintf(line, sizeof line, "%06d %08d\n", rank, i);
        CHECK(MPI_File_write_shared(any, line, len, MPI_CHAR, MPI_STATUS_IGNORE));
    }
    CHECK(MPI_File_close(&any));
}

static void nonblocking(void)
{
    static char pieces[REQUESTS][PIECE_BYTES];
    MPI_Request requests[REQUESTS];
    MPI_Offset size;
    MPI_File file = opened("nonblocking");
    CHECK(MPI_File_preallocate(file, 1 << 20));
    CHECK(MPI_File_set_size(file, SIZE_BYTES));
    for (int i = 0; i < REQUESTS; i++) {
        memset(pieces[i], 'a' + rank * REQUESTS + i, PIECE_BYTES);
        MPI_Offset at = ((MPI_Offset)i * ranks + rank) * PIECE_BYTES;
        CHECK(MPI_File_iwrite_at(file, at, pieces[i], PIECE_BYTES, MPI_BYTE, &requests[i]));
    }
    CHECK(MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE));
    CHECK(MPI_File_get_size(file, &size));
    expect(size == SIZE_BYTES, "the size is not what was set");
    CHECK(MPI_File_close(&file));
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    dir = count > 1 ? arguments[1] : ".";
    views();
    shared_pointers();
    nonblocking();
    MPI_Finalize();
    return 0;
}
