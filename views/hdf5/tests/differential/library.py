"""The HDF5 library of the h5py wheel (or another), called directly: every call, with its real status."""

import ctypes
import importlib.util
import os
import pathlib


class Token(ctypes.Structure):
    """`H5O_token_t`."""

    _fields_ = (("bytes", ctypes.c_uint8 * 16),)


# Meaning of the letters in the signatures below.
LETTERS = {
    "i": ctypes.c_int64,  # hid_t, ssize_t, int64_t
    "e": ctypes.c_int,  # herr_t, htri_t, int and enumerations
    "u": ctypes.c_uint,
    "n": ctypes.c_uint64,  # hsize_t, size_t
    "s": ctypes.c_char_p,
    "p": ctypes.c_void_p,
    "d": ctypes.c_double,
    "b": ctypes.c_bool,
    "k": Token,
}

# Name, arguments, result.
SIGNATURES = """
H5Aclose i e
H5Acreate2 isiiii i
H5Acreate_by_name issiiiii i
H5Adelete is e
H5Adelete_by_idx iseenI e
H5Adelete_by_name issi e
H5Aexists is e
H5Aexists_by_name issi e
H5Aget_create_plist i i
H5Aget_info ip e
H5Aget_info_by_idx iseenpi e
H5Aget_info_by_name isspi e
H5Aget_name inp i
H5Aget_name_by_idx iseenpni i
H5Aget_space i i
H5Aget_storage_size i n
H5Aget_type i i
H5Aiterate2 ieeppp e
H5Aiterate_by_name iseepppi e
H5Aopen isi i
H5Aopen_by_idx iseenii i
H5Aopen_by_name issii i
H5Aread iip e
H5Arename iss e
H5Arename_by_name isssi e
H5Awrite iip e
H5Dchunk_iter iipp e
H5Dclose i e
H5Dcreate2 isiiiii i
H5Dcreate_anon iiiii i
H5Dfill pipii e
H5Dflush i e
H5Dget_access_plist i i
H5Dget_chunk_info iinpppp e
H5Dget_chunk_info_by_coord ipppp e
H5Dget_chunk_storage_size ipp e
H5Dget_create_plist i i
H5Dget_num_chunks iip e
H5Dget_space i i
H5Dget_space_status ip e
H5Dget_storage_size i n
H5Dget_type i i
H5Dopen2 isi i
H5Dread iiiiip e
H5Dread_multi npppp ip e
H5Drefresh i e
H5Dset_extent ip e
H5Dvlen_get_buf_size iiip e
H5Dwrite iiiiip e
H5Dwrite_chunk iiupnp e
H5Dwrite_multi npppp ip e
H5Eget_num i i
H5Eset_auto2 ipp e
H5Fclose i e
H5Fcreate suii i
H5Fdelete si e
H5Fflush ie e
H5Fget_access_plist i i
H5Fget_create_plist i i
H5Fget_intent ip e
H5Fget_name ipn i
H5Fget_obj_count iu i
H5Fget_obj_ids iunp i
H5Fis_accessible si e
H5Fopen sui i
H5Freopen i i
H5Fget_fileno ip e
H5Gclose i e
H5Gcreate2 isiii i
H5Gcreate_anon iii i
H5Gget_create_plist i i
H5Gget_info ip e
H5Gget_info_by_idx iseenpi e
H5Gget_info_by_name ispi e
H5Gopen2 isi i
H5Gflush i e
H5Grefresh i e
H5Idec_ref i e
H5Iget_name ipn i
H5Iget_ref i e
H5Iget_type i e
H5Iis_valid i e
H5Lcopy isisii e
H5Lcreate_external ssisii e
H5Lcreate_hard isisii e
H5Lcreate_soft sisii e
H5Ldelete isi e
H5Ldelete_by_idx iseeni e
H5Lexists isi e
H5Lget_info2 ispi e
H5Lget_info_by_idx2 iseenpi e
H5Lget_name_by_idx iseenpni i
H5Lget_val ispni e
H5Lget_val_by_idx iseenpni e
H5Literate2 ieeppp e
H5Literate_by_name2 iseepppi e
H5Lmove isisii e
H5Lvisit2 ieepp e
H5Lvisit_by_name2 iseeppi e
H5Oclose i e
H5Ocopy isisii e
H5Odecr_refcount i e
H5Oexists_by_name isi e
H5Oflush i e
H5Oget_comment ipn i
H5Oget_comment_by_name ispni i
H5Oget_info3 ipu e
H5Oget_info_by_idx3 iseenpui e
H5Oget_info_by_name3 ispui e
H5Oincr_refcount i e
H5Olink iisii e
H5Oopen isi i
H5Oopen_by_idx iseeni i
H5Oopen_by_token ik i
H5Orefresh i e
H5Oset_comment is e
H5Oset_comment_by_name issi e
H5Ovisit3 ieeppu e
H5Ovisit_by_name3 iseeppui e
H5Pclose i e
H5Pcopy i i
H5Pcreate i i
H5Pequal ii e
H5Pfill_value_defined ip e
H5Pget_alloc_time ip e
H5Pget_attr_creation_order ip e
H5Pget_attr_phase_change ipp e
H5Pget_char_encoding ip e
H5Pget_chunk iep e
H5Pget_est_link_info ipp e
H5Pget_fill_time ip e
H5Pget_fill_value iip e
H5Pget_filter2 iupppnpp e
H5Pget_layout i e
H5Pget_link_creation_order ip e
H5Pget_link_phase_change ipp e
H5Pget_local_heap_size_hint ip e
H5Pget_nfilters i e
H5Pget_obj_track_times ip e
H5Pset_alloc_time ie e
H5Pset_attr_creation_order iu e
H5Pset_attr_phase_change iuu e
H5Pset_char_encoding ie e
H5Pset_chunk iep e
H5Pset_chunk_opts iu e
H5Pget_chunk_opts ip e
H5Pset_copy_object iu e
H5Pset_create_intermediate_group iu e
H5Pset_deflate iu e
H5Pset_est_link_info iuu e
H5Pset_fclose_degree ie e
H5Pset_fill_time ie e
H5Pset_fill_value iip e
H5Pset_filter ieunp e
H5Pset_fletcher32 i e
H5Pset_layout ie e
H5Pset_libver_bounds iee e
H5Pset_link_creation_order iu e
H5Pset_link_phase_change iuu e
H5Pset_local_heap_size_hint in e
H5Pset_nbit i e
H5Pset_obj_track_times ib e
H5Pset_scaleoffset iee e
H5Pset_shuffle i e
H5Pset_szip iuu e
H5Pset_nlinks in e
H5Rcopy pp e
H5Rcreate_attr issip e
H5Rcreate_object isip e
H5Rcreate_region isiip e
H5Rdestroy p e
H5Requal pp e
H5Rget_attr_name ppn i
H5Rget_file_name ppn i
H5Rget_obj_name pipn i
H5Rget_obj_type3 pip e
H5Rget_type p e
H5Ropen_attr pii i
H5Ropen_object pii i
H5Ropen_region pii i
H5Rcreate pisei e
H5Rdereference2 iiep i
H5Rget_obj_type2 iepp e
H5Rget_name ieppn i
H5Sclose i e
H5Scopy i i
H5Screate e i
H5Screate_simple epp i
H5Sencode2 ippi e
H5Sextent_equal ii e
H5Sget_select_hyper_blocklist innp e
H5Sget_select_hyper_nblocks i i
H5Sget_select_npoints i i
H5Sget_select_type i e
H5Sget_simple_extent_dims ipp e
H5Sget_simple_extent_npoints i i
H5Sget_simple_extent_type i e
H5Sselect_all i e
H5Sselect_elements ienp e
H5Sselect_hyperslab iepppp e
H5Sselect_none i e
H5Sselect_valid i e
H5Tarray_create2 iup i
H5Tclose i e
H5Tcommit2 isiiii e
H5Tcommit_anon iiii e
H5Tcommitted i e
H5Tcopy i i
H5Tcreate en i
H5Tenum_create i i
H5Tenum_insert isp e
H5Tequal ii e
H5Tflush i e
H5Tget_class i e
H5Tget_create_plist i i
H5Tget_size i n
H5Tinsert isni e
H5Topen2 isi i
H5Treclaim iiip e
H5Trefresh i e
H5Tset_cset ie e
H5Tset_ebias in e
H5Tset_offset in e
H5Tset_order ie e
H5Tset_precision in e
H5Tset_sign ie e
H5Tset_size in e
H5Tset_strpad ie e
H5Tset_tag is e
H5Tvlen_create i i
"""

# Property list classes and predefined types: variables of the library.
VARIABLES = """
H5P_CLS_OBJECT_COPY_ID_g H5P_CLS_OBJECT_CREATE_ID_g H5P_CLS_LINK_CREATE_ID_g H5P_CLS_GROUP_CREATE_ID_g
H5P_CLS_DATASET_CREATE_ID_g H5P_CLS_DATATYPE_CREATE_ID_g H5P_CLS_ATTRIBUTE_CREATE_ID_g H5P_CLS_FILE_CREATE_ID_g
H5P_CLS_FILE_ACCESS_ID_g H5P_CLS_DATASET_XFER_ID_g H5P_CLS_DATASET_ACCESS_ID_g
H5T_C_S1_g H5T_STD_I8LE_g H5T_STD_B8LE_g H5T_STD_B16LE_g H5T_STD_B32LE_g H5T_STD_B64LE_g H5T_IEEE_F32LE_g
H5T_IEEE_F64LE_g H5T_IEEE_F16LE_g H5T_STD_REF_g H5T_STD_REF_OBJ_g
"""


class Library:
    """Each function of `SIGNATURES` and each variable of `VARIABLES` as an attribute, without its `_g`."""

    def __init__(self, path=None):
        self.c = ctypes.CDLL(path or of_h5py())
        for line in SIGNATURES.split("\n"):
            if line:
                name, *letters, result = line.split()
                # `I` is an identifier passed by value, too: the letters only tell a reader which argument is which.
                arguments = "".join(letters).replace("I", "i")
                self._declare(name, [LETTERS[a] for a in arguments], LETTERS[result])
        if hasattr(self.c, "H5Dread_chunk2"):
            self._declare("H5Dread_chunk1", [LETTERS[a] for a in "iippp"], ctypes.c_int)
        else:
            self._declare("H5Dread_chunk", [LETTERS[a] for a in "iippp"], ctypes.c_int)
        self.read_chunk = getattr(self, "H5Dread_chunk1", None) or self.H5Dread_chunk
        self.c.H5open()
        for name in VARIABLES.split():
            if hasattr(self.c, name):
                setattr(self, name[:-2], ctypes.c_int64.in_dll(self.c, name).value)
        self.H5Eset_auto2(0, None, None)
        self.c.H5Iget_file_id.argtypes, self.c.H5Iget_file_id.restype = [ctypes.c_int64], ctypes.c_int64
        self.c.H5free_memory.argtypes = [ctypes.c_void_p]

    def _declare(self, name, arguments, result):
        function = getattr(self.c, name, None)
        if function is not None:
            function.argtypes, function.restype = arguments, result
            setattr(self, name, function)

    def version(self):
        """The library's version, as three numbers."""
        parts = (ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint())
        self.c.H5get_libversion(*(ctypes.byref(p) for p in parts))
        return tuple(p.value for p in parts)


def of_h5py():
    """The library of the h5py wheel. h5py itself is not imported, since it registers conversions of its own."""
    found = importlib.util.find_spec("h5py")
    where = pathlib.Path(found.origin).parent.parent / "h5py.libs" if found else pathlib.Path()
    libraries = sorted(where.glob("libhdf5-*.so*"))
    if libraries:
        return os.fspath(libraries[0])
    raise SystemExit("differential: this h5py has no library of its own; name one with --library")
