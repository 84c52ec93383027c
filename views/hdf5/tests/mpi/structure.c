/* Calls that change metadata, made by all ranks: each takes effect once, and no rank sees later ones of others. */
#include "check.h"

static hsize_t links_in(hid_t group)
{
    H5G_info_t info;
    CHECK(H5Gget_info(group, &info) >= 0);
    return info.nlinks;
}

static int has(hid_t group, const char *name)
{
    return H5Lexists(group, name, H5P_DEFAULT) > 0;
}

static hid_t make_dataset(hid_t group, const char *name, hsize_t length)
{
    hid_t space = H5Screate_simple(1, &length, NULL);
    hid_t dset = H5Dcreate2(group, name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(dset >= 0);
    H5Sclose(space);
    return dset;
}

/* Rank `rank` writes element `rank`; then every rank checks all elements. */
static void write_and_check(hid_t dset, int base)
{
    hsize_t at = (hsize_t)rank, one = 1;
    int value = base + rank, have[64];
    hid_t space = H5Dget_space(dset), memory = H5Screate_simple(1, &one, NULL);
    CHECK(H5Sselect_elements(space, H5S_SELECT_SET, 1, &at) >= 0);
    CHECK(H5Dwrite(dset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &value) >= 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(H5Dread(dset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, have) >= 0);
    for (int i = 0; i < ranks; i++) {
        CHECK(have[i] == base + i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    H5Sclose(memory);
    H5Sclose(space);
}

/* After its n-th creation a rank sees n objects, even if others have already made the next call. */
static void nobody_sees_ahead(hid_t file)
{
    hid_t group = H5Gcreate2(file, "ahead", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    char name[32];
    for (unsigned i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "g%u", i);
        hid_t made = H5Gcreate2(group, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        CHECK(made >= 0);
        for (int spin = 0; spin < rank * 20000; spin++) {
            __asm__ volatile("");
        }
        CHECK(links_in(group) == i + 1);
        H5Gclose(made);
    }
    for (unsigned i = 0; i < 40; i += 2) {
        snprintf(name, sizeof name, "g%u", i);
        CHECK(H5Ldelete(group, name, H5P_DEFAULT) >= 0);
        CHECK(links_in(group) == 39 - i / 2);
    }
    H5Gclose(group);
}

/* An object unlinked while ranks have it open stays until the last of them closes it. */
static void unlinked_while_open(hid_t file)
{
    for (int i = 0; i < 5; i++) {
        hid_t dset = make_dataset(file, "short-lived", 64);
        write_and_check(dset, 100 * i);
        CHECK(H5Ldelete(file, "short-lived", H5P_DEFAULT) >= 0);
        CHECK(!has(file, "short-lived"));
        if (rank % 2 == 0) {
            H5Dclose(dset);
        }
        hid_t again = make_dataset(file, "short-lived", 64);
        write_and_check(again, 100 * i + 50);
        if (rank % 2 == 1) {
            int have[64];
            CHECK(H5Dread(dset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, have) >= 0);
            CHECK(have[rank] == 100 * i + rank);
            H5Dclose(dset);
        }
        H5Dclose(again);
        CHECK(H5Ldelete(file, "short-lived", H5P_DEFAULT) >= 0);
    }
}

static void attributes(hid_t file)
{
    hid_t scalar = H5Screate(H5S_SCALAR), group = H5Gcreate2(file, "attrs", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    int have = 0;
    for (int i = 0; i < 20; i++) {
        hid_t attr = H5Acreate2(group, "a", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT);
        CHECK(attr >= 0 && H5Awrite(attr, H5T_NATIVE_INT, &i) >= 0);
        CHECK(H5Aread(attr, H5T_NATIVE_INT, &have) >= 0 && have == i);
        H5Aclose(attr);
        CHECK(H5Arename(group, "a", "b") >= 0);
        CHECK(H5Aexists(group, "a") == 0 && H5Aexists(group, "b") > 0);
        CHECK(H5Adelete(group, "b") >= 0);
        CHECK(H5Aexists(group, "b") == 0);
    }
    /* Created and not written, then another call. */
    hid_t attr = H5Acreate2(group, "late", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(attr >= 0 && has(file, "attrs"));
    have = 7;
    CHECK(H5Awrite(attr, H5T_NATIVE_INT, &have) >= 0);
    H5Aclose(attr);
    H5Gclose(group);
    H5Sclose(scalar);
}

/* A failing call fails on all ranks, and all continue. */
static void failures(hid_t file)
{
    hid_t id, group = H5Gcreate2(file, "failures", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    herr_t status;
    QUIETLY(id, H5Gcreate2(file, "failures", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    CHECK(id < 0);
    QUIETLY(status, H5Ldelete(group, "none", H5P_DEFAULT));
    CHECK(status < 0);
    QUIETLY(id, H5Gcreate2(group, "missing/child", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    CHECK(id < 0);
    hid_t dset = make_dataset(group, "still works", 64);
    write_and_check(dset, 1);
    H5Dclose(dset);
    H5Gclose(group);
}

static void links_and_copies(hid_t file)
{
    hid_t lcpl = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(lcpl, 1);
    hid_t dset = H5Gcreate2(file, "links/deep/below", lcpl, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(dset >= 0);
    H5Gclose(dset);
    hid_t group = H5Gopen2(file, "links", H5P_DEFAULT);
    dset = make_dataset(group, "data", 64);
    write_and_check(dset, 5);
    H5Dclose(dset);
    CHECK(H5Lcreate_hard(group, "data", group, "hard", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(H5Lcreate_soft("data", group, "soft", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(H5Lmove(group, "data", group, "moved", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(H5Lcopy(group, "moved", group, "deep/again", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(!has(group, "data") && has(group, "moved") && has(group, "deep/again"));
    CHECK(H5Ocopy(group, "moved", file, "copy", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5O_info2_t info;
    CHECK(H5Oget_info_by_name3(group, "hard", &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0 && info.rc == 3);
    hid_t copy = H5Dopen2(file, "copy", H5P_DEFAULT);
    write_and_check(copy, 9);
    H5Dclose(copy);
    hid_t type = H5Tcopy(H5T_STD_I16BE);
    CHECK(H5Tcommit2(group, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Tclose(type);
    H5Gclose(group);
    H5Pclose(lcpl);
}

/* A dataset that gets its name after its creation. */
static void anonymous(hid_t file)
{
    hsize_t length = 64;
    hid_t space = H5Screate_simple(1, &length, NULL);
    hid_t dset = H5Dcreate_anon(file, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(dset >= 0);
    write_and_check(dset, 3);
    CHECK(H5Olink(dset, file, "named", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Dclose(dset);
    CHECK(has(file, "named"));
    dset = H5Dcreate_anon(file, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
    if (rank == 0) {
        H5Dclose(dset);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0) {
        int value[64] = {0};
        CHECK(H5Dwrite(dset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0);
        H5Dclose(dset);
    }
    H5Sclose(space);
}

/* Objects created and looked up through an external link. */
static void external(hid_t file, const char *name)
{
    char other[4096];
    snprintf(other, sizeof other, "%s.other", name);
    hid_t second = create_file(other);
    hid_t group = H5Gcreate2(second, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(group);
    CHECK(H5Fclose(second) >= 0);
    CHECK(H5Lcreate_external(other, "/g", file, "outside", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    hid_t made = H5Gcreate2(file, "outside/made", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(made >= 0);
    hid_t dset = make_dataset(made, "data", 64);
    write_and_check(dset, 2);
    H5Dclose(dset);
    H5Gclose(made);
    CHECK(has(file, "outside/made/data"));
}

/* Ranks that make different calls get an error; no rank waits forever. Only a store can detect this. */
static void parted_ways(const char *name)
{
    char other[4096];
    snprintf(other, sizeof other, "%s.parted", name);
    hid_t group, file = create_file(other);
    QUIETLY(group, H5Gcreate2(file, rank == 1 ? "one" : "other", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    CHECK(group < 0);
    QUIETLY(group, H5Gcreate2(file, "later", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    CHECK(group < 0);
    herr_t status;
    QUIETLY(status, H5Fclose(file));
    (void)status;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const char *name = argc > 1 ? argv[1] : "structure.h5";
    hid_t file = create_file(name);
    check_connector(file);
    /* Native HDF5 shows a rank's writes to others before the next flush only if asked to. */
    CHECK(H5Fset_mpi_atomicity(file, 1) >= 0);
    nobody_sees_ahead(file);
    unlinked_while_open(file);
    attributes(file);
    failures(file);
    links_and_copies(file);
    anonymous(file);
    external(file, name);
    CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
    CHECK(H5Fclose(file) >= 0);
    file = open_file(name, H5F_ACC_RDWR);
    CHECK(links_in(file) == 7 && !has(file, "short-lived"));
    CHECK(H5Fclose(file) >= 0);
    if (getenv("CENOTE_CHECK") && ranks > 1) {
        parted_ways(name);
    }
    return end("structure");
}
