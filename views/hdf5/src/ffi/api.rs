//! The functions of one libhdf5, found at run time: one [`Api`] per libhdf5 in the process.
//!
//! The connector has no link-time dependency on libhdf5: wheels carry private copies under hashed names, and linking
//! one would load a second copy, whose ids differ from those of the program.

#![allow(missing_docs, non_snake_case, reason = "the names and meanings are those of HDF5's headers")]
#![allow(clippy::wildcard_imports, reason = "the types of HDF5 are this file's vocabulary")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::LibraryVersion;
use super::mpi::Mpi;
use super::types::*;

/// `H5Epush2`: stack, file, function, line, class, major, minor, format, …
type PushFn = unsafe extern "C" fn(
    hid_t,
    *const c_char,
    *const c_char,
    c_uint,
    hid_t,
    hid_t,
    hid_t,
    *const c_char,
    ...
) -> herr_t;

macro_rules! api {
    (
        required { $( fn $name:ident ( $($arg:ty),* $(,)? ) -> $ret:ty; )* }
        optional { $( fn $oname:ident ( $($oarg:ty),* $(,)? ) -> $oret:ty; )* }
        data { $( $dname:ident )* }
    ) => {
        /// Function table and global ids of one libhdf5.
        pub struct Api {
            $( pub $name: unsafe extern "C" fn($($arg),*) -> $ret, )*
            $( pub $oname: Option<unsafe extern "C" fn($($oarg),*) -> $oret>, )*
            $( $dname: DataSymbol, )*
            /// Pushes an entry on the error stack (variadic in C).
            pub H5Epush2: PushFn,
            /// The MPI that it uses, if any.
            pub mpi: Option<Mpi>,
            /// Version of the library.
            pub version: LibraryVersion,
            /// The slot of callbacks that serves this library.
            pub slot: usize,
        }
        impl Api {
            /// Finds all symbols through `lookup` (name, prefer the program's copy of a variable); returns the name of
            /// a missing one.
            ///
            /// # Safety
            /// `lookup` must return the addresses of HDF5's functions and variables of those names.
            pub unsafe fn load(
                slot: usize, version: LibraryVersion, lookup: &dyn Fn(&CStr) -> [*mut c_void; 2],
            ) -> Result<Self, &'static str> {
                fn find(lookup: &dyn Fn(&CStr) -> [*mut c_void; 2], name: &CStr) -> *mut c_void { lookup(name)[0] }
                Ok(Self {
                    $( $name: {
                        let p = find(lookup, cname(concat!(stringify!($name), "\0")));
                        if p.is_null() { return Err(stringify!($name)); }
                        // SAFETY: the caller vouches that the address is that function's.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $ret>(p) }
                    }, )*
                    $( $oname: {
                        let p = find(lookup, cname(concat!(stringify!($oname), "\0")));
                        // SAFETY: as above; a null pointer becomes `None`.
                        unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($oarg),*) -> $oret>>(p) }
                    }, )*
                    $( $dname: DataSymbol(lookup(cname(concat!(stringify!($dname), "\0"))).map(|p| p as usize)), )*
                    H5Epush2: {
                        let p = find(lookup, c"H5Epush2");
                        if p.is_null() { return Err("H5Epush2"); }
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut c_void, PushFn>(p) }
                    },
                    mpi: Mpi::find(lookup),
                    version,
                    slot,
                })
            }
            $( /// The global id of that name in this library (it may change when the library is closed and reopened).
            pub fn $dname(&self) -> hid_t { self.$dname.get() } )*
        }
    };
}

/// Addresses of a global id: in the library, and possibly in the program (a copy relocation). The one that is set is in
/// use.
#[derive(Clone, Copy)]
struct DataSymbol([usize; 2]);

impl DataSymbol {
    fn get(self) -> hid_t {
        for address in self.0 {
            if address != 0 {
                // SAFETY: the address is that of a `hid_t` variable of a library that is never unloaded under us.
                let id = unsafe { *(address as *const hid_t) };
                if id > 0 {
                    return id;
                }
            }
        }
        H5I_INVALID_HID
    }
}

fn cname(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or(c"")
}

api! {
    required {
        fn H5open() -> herr_t;
        fn H5free_memory(*mut c_void) -> herr_t;
        fn H5allocate_memory(usize, bool) -> *mut c_void;

        fn H5Tcopy(hid_t) -> hid_t;
        fn H5Tclose(hid_t) -> herr_t;
        fn H5Tget_class(hid_t) -> c_int;
        fn H5Tget_size(hid_t) -> usize;
        fn H5Tget_super(hid_t) -> hid_t;
        fn H5Tget_nmembers(hid_t) -> c_int;
        fn H5Tget_member_type(hid_t, c_uint) -> hid_t;
        fn H5Tget_member_name(hid_t, c_uint) -> *mut c_char;
        fn H5Tget_member_offset(hid_t, c_uint) -> usize;
        fn H5Tget_member_class(hid_t, c_uint) -> c_int;
        fn H5Tis_variable_str(hid_t) -> htri_t;
        fn H5Tequal(hid_t, hid_t) -> htri_t;
        fn H5Tencode(hid_t, *mut c_void, *mut usize) -> herr_t;
        fn H5Tfind(hid_t, hid_t, *mut *mut c_void) -> *mut c_void;
        fn H5Tconvert(hid_t, hid_t, usize, *mut c_void, *mut c_void, hid_t) -> herr_t;
        fn H5Tcommitted(hid_t) -> htri_t;
        fn H5Tdetect_class(hid_t, c_int) -> htri_t;
        fn H5Tget_native_type(hid_t, c_int) -> hid_t;
        fn H5Tcreate(c_int, usize) -> hid_t;
        fn H5Tinsert(hid_t, *const c_char, usize, hid_t) -> herr_t;
        fn H5Tarray_create2(hid_t, c_uint, *const hsize_t) -> hid_t;
        fn H5Tvlen_create(hid_t) -> hid_t;
        fn H5Tget_array_ndims(hid_t) -> c_int;
        fn H5Tget_array_dims2(hid_t, *mut hsize_t) -> c_int;
        fn H5Tset_size(hid_t, usize) -> herr_t;
        fn H5Tpack(hid_t) -> herr_t;
        fn H5Treclaim(hid_t, hid_t, hid_t, *mut c_void) -> herr_t;
        fn H5Tget_order(hid_t) -> c_int;
        fn H5Tget_sign(hid_t) -> c_int;
        fn H5Tget_precision(hid_t) -> usize;
        fn H5Tget_offset(hid_t) -> c_int;
        fn H5Tget_cset(hid_t) -> c_int;
        fn H5Tget_strpad(hid_t) -> c_int;
        fn H5Tset_cset(hid_t, c_int) -> herr_t;
        fn H5Tset_strpad(hid_t, c_int) -> herr_t;
        fn H5Tset_tag(hid_t, *const c_char) -> herr_t;

        fn H5Scopy(hid_t) -> hid_t;
        fn H5Sclose(hid_t) -> herr_t;
        fn H5Screate(c_int) -> hid_t;
        fn H5Screate_simple(c_int, *const hsize_t, *const hsize_t) -> hid_t;
        fn H5Sget_simple_extent_type(hid_t) -> c_int;
        fn H5Sget_simple_extent_ndims(hid_t) -> c_int;
        fn H5Sget_simple_extent_dims(hid_t, *mut hsize_t, *mut hsize_t) -> c_int;
        fn H5Sget_simple_extent_npoints(hid_t) -> hssize_t;
        fn H5Sset_extent_simple(hid_t, c_int, *const hsize_t, *const hsize_t) -> herr_t;
        fn H5Sextent_copy(hid_t, hid_t) -> herr_t;
        fn H5Sextent_equal(hid_t, hid_t) -> htri_t;
        fn H5Sget_select_npoints(hid_t) -> hssize_t;
        fn H5Sget_select_type(hid_t) -> c_int;
        fn H5Sget_select_bounds(hid_t, *mut hsize_t, *mut hsize_t) -> herr_t;
        fn H5Sget_select_elem_npoints(hid_t) -> hssize_t;
        fn H5Sget_select_elem_pointlist(hid_t, hsize_t, hsize_t, *mut hsize_t) -> herr_t;
        fn H5Sget_select_hyper_nblocks(hid_t) -> hssize_t;
        fn H5Sget_select_hyper_blocklist(hid_t, hsize_t, hsize_t, *mut hsize_t) -> herr_t;
        fn H5Sget_regular_hyperslab(hid_t, *mut hsize_t, *mut hsize_t, *mut hsize_t, *mut hsize_t) -> htri_t;
        fn H5Sis_regular_hyperslab(hid_t) -> htri_t;
        fn H5Sselect_all(hid_t) -> herr_t;
        fn H5Sselect_none(hid_t) -> herr_t;
        fn H5Sselect_valid(hid_t) -> htri_t;
        fn H5Sselect_hyperslab(hid_t, c_int, *const hsize_t, *const hsize_t, *const hsize_t, *const hsize_t) -> herr_t;
        fn H5Sselect_elements(hid_t, c_int, usize, *const hsize_t) -> herr_t;
        fn H5Sselect_copy(hid_t, hid_t) -> herr_t;
        fn H5Sselect_adjust(hid_t, *const hssize_t) -> herr_t;
        fn H5Sselect_intersect_block(hid_t, *const hsize_t, *const hsize_t) -> htri_t;
        fn H5Sselect_project_intersection(hid_t, hid_t, hid_t) -> hid_t;
        fn H5Sselect_shape_same(hid_t, hid_t) -> htri_t;
        fn H5Scombine_select(hid_t, c_int, hid_t) -> hid_t;
        fn H5Smodify_select(hid_t, c_int, hid_t) -> herr_t;
        fn H5Soffset_simple(hid_t, *const hssize_t) -> herr_t;
        fn H5Ssel_iter_create(hid_t, usize, c_uint) -> hid_t;
        fn H5Ssel_iter_get_seq_list(hid_t, usize, usize, *mut usize, *mut usize, *mut hsize_t, *mut usize) -> herr_t;
        fn H5Ssel_iter_close(hid_t) -> herr_t;

        fn H5Pcreate(hid_t) -> hid_t;
        fn H5Pcopy(hid_t) -> hid_t;
        fn H5Pclose(hid_t) -> herr_t;
        fn H5Pisa_class(hid_t, hid_t) -> htri_t;
        fn H5Pexist(hid_t, *const c_char) -> htri_t;
        fn H5Pget(hid_t, *const c_char, *mut c_void) -> herr_t;
        fn H5Pset(hid_t, *const c_char, *const c_void) -> herr_t;
        fn H5Pget_layout(hid_t) -> c_int;
        fn H5Pset_layout(hid_t, c_int) -> herr_t;
        fn H5Pget_chunk(hid_t, c_int, *mut hsize_t) -> c_int;
        fn H5Pset_chunk(hid_t, c_int, *const hsize_t) -> herr_t;
        fn H5Pget_chunk_opts(hid_t, *mut c_uint) -> herr_t;
        fn H5Pset_chunk_opts(hid_t, c_uint) -> herr_t;
        fn H5Pget_nfilters(hid_t) -> c_int;
        fn H5Pget_filter2(hid_t, c_uint, *mut c_uint, *mut usize, *mut c_uint, usize, *mut c_char, *mut c_uint) -> c_int;
        fn H5Pset_filter(hid_t, c_int, c_uint, usize, *const c_uint) -> herr_t;
        fn H5Pget_fill_value(hid_t, hid_t, *mut c_void) -> herr_t;
        fn H5Pset_fill_value(hid_t, hid_t, *const c_void) -> herr_t;
        fn H5Pfill_value_defined(hid_t, *mut c_int) -> herr_t;
        fn H5Pget_fill_time(hid_t, *mut c_int) -> herr_t;
        fn H5Pset_fill_time(hid_t, c_int) -> herr_t;
        fn H5Pset_vlen_mem_manager(
            hid_t,
            Option<unsafe extern "C" fn(usize, *mut c_void) -> *mut c_void>,
            *mut c_void,
            Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
            *mut c_void,
        ) -> herr_t;
        fn H5Pget_alloc_time(hid_t, *mut c_int) -> herr_t;
        fn H5Pset_alloc_time(hid_t, c_int) -> herr_t;
        fn H5Pget_external_count(hid_t) -> c_int;
        fn H5Pget_external(hid_t, c_uint, usize, *mut c_char, *mut i64, *mut hsize_t) -> herr_t;
        fn H5Pset_external(hid_t, *const c_char, i64, hsize_t) -> herr_t;
        fn H5Pget_virtual_count(hid_t, *mut usize) -> herr_t;
        fn H5Pget_virtual_vspace(hid_t, usize) -> hid_t;
        fn H5Pget_virtual_srcspace(hid_t, usize) -> hid_t;
        fn H5Pget_virtual_filename(hid_t, usize, *mut c_char, usize) -> ssize_t;
        fn H5Pget_virtual_dsetname(hid_t, usize, *mut c_char, usize) -> ssize_t;
        fn H5Pset_virtual(hid_t, hid_t, *const c_char, *const c_char, hid_t) -> herr_t;
        fn H5Pget_virtual_view(hid_t, *mut c_int) -> herr_t;
        fn H5Pget_virtual_printf_gap(hid_t, *mut hsize_t) -> herr_t;
        fn H5Pset_virtual_view(hid_t, c_int) -> herr_t;
        fn H5Pset_virtual_printf_gap(hid_t, hsize_t) -> herr_t;
        fn H5Pset_virtual_prefix(hid_t, *const c_char) -> herr_t;
        fn H5Pset_efile_prefix(hid_t, *const c_char) -> herr_t;
        fn H5Pget_virtual_prefix(hid_t, *mut c_char, usize) -> ssize_t;
        fn H5Pget_efile_prefix(hid_t, *mut c_char, usize) -> ssize_t;
        fn H5Pget_elink_prefix(hid_t, *mut c_char, usize) -> ssize_t;
        fn H5Pget_obj_track_times(hid_t, *mut bool) -> herr_t;
        fn H5Pset_obj_track_times(hid_t, bool) -> herr_t;
        fn H5Pget_attr_creation_order(hid_t, *mut c_uint) -> herr_t;
        fn H5Pset_attr_creation_order(hid_t, c_uint) -> herr_t;
        fn H5Pget_attr_phase_change(hid_t, *mut c_uint, *mut c_uint) -> herr_t;
        fn H5Pset_attr_phase_change(hid_t, c_uint, c_uint) -> herr_t;
        fn H5Pget_link_creation_order(hid_t, *mut c_uint) -> herr_t;
        fn H5Pset_link_creation_order(hid_t, c_uint) -> herr_t;
        fn H5Pget_link_phase_change(hid_t, *mut c_uint, *mut c_uint) -> herr_t;
        fn H5Pset_link_phase_change(hid_t, c_uint, c_uint) -> herr_t;
        fn H5Pget_est_link_info(hid_t, *mut c_uint, *mut c_uint) -> herr_t;
        fn H5Pset_est_link_info(hid_t, c_uint, c_uint) -> herr_t;
        fn H5Pget_local_heap_size_hint(hid_t, *mut usize) -> herr_t;
        fn H5Pset_local_heap_size_hint(hid_t, usize) -> herr_t;
        fn H5Pget_create_intermediate_group(hid_t, *mut c_uint) -> herr_t;
        fn H5Pget_char_encoding(hid_t, *mut c_int) -> herr_t;
        fn H5Pset_char_encoding(hid_t, c_int) -> herr_t;
        fn H5Pget_copy_object(hid_t, *mut c_uint) -> herr_t;
        fn H5Pget_nlinks(hid_t, *mut usize) -> herr_t;
        fn H5Pget_vol_id(hid_t, *mut hid_t) -> herr_t;
        fn H5Pget_vol_info(hid_t, *mut *mut c_void) -> herr_t;
        fn H5Pset_vol(hid_t, hid_t, *const c_void) -> herr_t;
        fn H5Pget_fclose_degree(hid_t, *mut c_int) -> herr_t;
        fn H5Pset_fclose_degree(hid_t, c_int) -> herr_t;
        fn H5Pget_file_space_strategy(hid_t, *mut c_int, *mut bool, *mut hsize_t) -> herr_t;
        fn H5Pset_file_space_strategy(hid_t, c_int, bool, hsize_t) -> herr_t;
        fn H5Pget_file_space_page_size(hid_t, *mut hsize_t) -> herr_t;
        fn H5Pset_file_space_page_size(hid_t, hsize_t) -> herr_t;
        fn H5Pget_sym_k(hid_t, *mut c_uint, *mut c_uint) -> herr_t;
        fn H5Pset_sym_k(hid_t, c_uint, c_uint) -> herr_t;
        fn H5Pget_istore_k(hid_t, *mut c_uint) -> herr_t;
        fn H5Pset_istore_k(hid_t, c_uint) -> herr_t;
        fn H5Pget_sizes(hid_t, *mut usize, *mut usize) -> herr_t;
        fn H5Pset_sizes(hid_t, usize, usize) -> herr_t;
        fn H5Pget_page_buffer_size(hid_t, *mut usize, *mut c_uint, *mut c_uint) -> herr_t;
        fn H5Pset_page_buffer_size(hid_t, usize, c_uint, c_uint) -> herr_t;
        fn H5Pget_mdc_config(hid_t, *mut c_void) -> herr_t;
        fn H5Pset_mdc_config(hid_t, *mut c_void) -> herr_t;
        fn H5Pget_userblock(hid_t, *mut hsize_t) -> herr_t;
        fn H5Pset_userblock(hid_t, hsize_t) -> herr_t;
        fn H5Pget_buffer(hid_t, *mut *mut c_void, *mut *mut c_void) -> usize;
        fn H5Pget_edc_check(hid_t) -> c_int;
        fn H5Pget_data_transform(hid_t, *mut c_char, usize) -> ssize_t;
        fn H5Pget_driver(hid_t) -> hid_t;
        fn H5Pget_elink_acc_flags(hid_t, *mut c_uint) -> herr_t;
        fn H5Pget_elink_fapl(hid_t) -> hid_t;
        fn H5Pset_edc_check(hid_t, c_int) -> herr_t;
        fn H5Pset_fapl_core(hid_t, usize, bool) -> herr_t;
        fn H5Pset_chunk_cache(hid_t, usize, usize, f64) -> herr_t;
        fn H5Zfilter_avail(c_int) -> htri_t;
        fn H5Fcreate(*const c_char, c_uint, hid_t, hid_t) -> hid_t;
        fn H5Fopen(*const c_char, c_uint, hid_t) -> hid_t;
        fn H5FDregister(*const c_void) -> hid_t;
        fn H5Pset_driver(hid_t, hid_t, *const c_void) -> herr_t;
        fn H5Fget_create_plist(hid_t) -> hid_t;
        fn H5PLget(c_uint, *mut c_char, usize) -> ssize_t;
        fn H5PLremove(c_uint) -> herr_t;
        fn H5Fclose(hid_t) -> herr_t;
        fn H5Pset_libver_bounds(hid_t, c_int, c_int) -> herr_t;
        fn H5Gcreate_anon(hid_t, hid_t, hid_t) -> hid_t;
        fn H5Dcreate_anon(hid_t, hid_t, hid_t, hid_t, hid_t) -> hid_t;
        fn H5Tcommit_anon(hid_t, hid_t, hid_t, hid_t) -> herr_t;
        fn H5Olink(hid_t, hid_t, *const c_char, hid_t, hid_t) -> herr_t;
        fn H5Lcreate_soft(*const c_char, hid_t, *const c_char, hid_t, hid_t) -> herr_t;
        fn H5Lcreate_external(*const c_char, *const c_char, hid_t, *const c_char, hid_t, hid_t) -> herr_t;
        fn H5Acreate2(hid_t, *const c_char, hid_t, hid_t, hid_t, hid_t) -> hid_t;
        fn H5Awrite(hid_t, hid_t, *const c_void) -> herr_t;
        fn H5Oset_comment(hid_t, *const c_char) -> herr_t;
        fn H5Oopen_by_token(hid_t, H5O_token_t) -> hid_t;
        fn H5Oget_info3(hid_t, *mut H5O_info2_t, c_uint) -> herr_t;
        fn H5Oget_comment(hid_t, *mut c_char, usize) -> ssize_t;
        fn H5Gget_create_plist(hid_t) -> hid_t;
        fn H5Gget_info(hid_t, *mut H5G_info_t) -> herr_t;
        fn H5Tget_create_plist(hid_t) -> hid_t;
        fn H5Literate2(hid_t, c_int, c_int, *mut hsize_t, H5L_iterate2_t, *mut c_void) -> herr_t;
        fn H5Lget_val(hid_t, *const c_char, *mut c_void, usize, hid_t) -> herr_t;
        fn H5Aopen(hid_t, *const c_char, hid_t) -> hid_t;
        fn H5Aget_type(hid_t) -> hid_t;
        fn H5Aget_space(hid_t) -> hid_t;
        fn H5Aread(hid_t, hid_t, *mut c_void) -> herr_t;
        fn H5Aiterate2(hid_t, c_int, c_int, *mut hsize_t, H5A_operator2_t, *mut c_void) -> herr_t;
        fn H5Dget_type(hid_t) -> hid_t;
        fn H5Dget_space(hid_t) -> hid_t;
        fn H5Dget_storage_size(hid_t) -> hsize_t;
        fn H5Dchunk_iter(hid_t, hid_t, H5D_chunk_iter_op_t, *mut c_void) -> herr_t;
        fn H5Dget_space_status(hid_t, *mut c_int) -> herr_t;
        fn H5Ewalk2(hid_t, c_int, H5E_walk2_t, *mut c_void) -> herr_t;
        fn H5VLdataset_optional(*mut c_void, hid_t, *mut OptionalArgs, hid_t, *mut *mut c_void) -> herr_t;
        fn H5Dget_create_plist(hid_t) -> hid_t;
        fn H5Dopen2(hid_t, *const c_char, hid_t) -> hid_t;
        fn H5Dcreate2(hid_t, *const c_char, hid_t, hid_t, hid_t, hid_t, hid_t) -> hid_t;
        fn H5Dwrite(hid_t, hid_t, hid_t, hid_t, hid_t, *const c_void) -> herr_t;
        fn H5Dread(hid_t, hid_t, hid_t, hid_t, hid_t, *mut c_void) -> herr_t;
        fn H5Zget_filter_info(c_int, *mut c_uint) -> herr_t;

        fn H5Iget_type(hid_t) -> c_int;
        fn H5Iis_valid(hid_t) -> htri_t;
        fn H5Iinc_ref(hid_t) -> c_int;
        fn H5Idec_ref(hid_t) -> c_int;
        fn H5Iget_ref(hid_t) -> c_int;
        fn H5Iiterate(c_int, H5I_iterate_func_t, *mut c_void) -> herr_t;

        fn H5Eget_auto2(hid_t, *mut H5E_auto2_t, *mut *mut c_void) -> herr_t;
        fn H5Eset_auto2(hid_t, H5E_auto2_t, *mut c_void) -> herr_t;
        fn H5Eclear2(hid_t) -> herr_t;
        fn H5Eget_num(hid_t) -> isize;
        fn H5Eget_current_stack() -> hid_t;
        fn H5Eset_current_stack(hid_t) -> herr_t;
        fn H5Eregister_class(*const c_char, *const c_char, *const c_char) -> hid_t;

        fn H5VLget_connector_id_by_name(*const c_char) -> hid_t;
        fn H5VLget_file_type(*mut c_void, hid_t, hid_t) -> hid_t;
        fn H5VLobject(hid_t) -> *mut c_void;
        fn H5Rdereference2(hid_t, hid_t, c_int, *const c_void) -> hid_t;
        fn H5Rget_region(hid_t, c_int, *const c_void) -> hid_t;
        fn H5Rcreate(*mut c_void, hid_t, *const c_char, c_int, hid_t) -> herr_t;
        fn H5VLclose(hid_t) -> herr_t;
        fn H5VLget_connector_id(hid_t) -> hid_t;
        fn H5VLwrap_register(*mut c_void, c_int) -> hid_t;
        fn H5VLintrospect_get_conn_cls(*mut c_void, hid_t, c_int, *mut *const c_void) -> herr_t;
        fn H5VLretrieve_lib_state(*mut *mut c_void) -> herr_t;
        fn H5VLrestore_lib_state(*const c_void) -> herr_t;
        fn H5VLfree_lib_state(*mut c_void) -> herr_t;
    }
    optional {
        fn H5Pget_file_locking(hid_t, *mut bool, *mut bool) -> herr_t;
        fn H5Tdecode(*const c_void) -> hid_t;
        fn H5Tdecode1(*const c_void) -> hid_t;
        fn H5Tdecode2(*const c_void, usize) -> hid_t;
        fn H5Pget_dset_no_attrs_hint(hid_t, *mut bool) -> herr_t;
        fn H5Pset_dset_no_attrs_hint(hid_t, bool) -> herr_t;
        fn H5Dwrite_chunk(hid_t, hid_t, u32, *const hsize_t, usize, *const c_void) -> herr_t;
        fn H5Dget_offset(hid_t) -> haddr_t;
        fn H5Dread_chunk(hid_t, hid_t, *const hsize_t, *mut u32, *mut c_void) -> herr_t;
        fn H5Dread_chunk1(hid_t, hid_t, *const hsize_t, *mut u32, *mut c_void) -> herr_t;
        fn H5Dread_chunk2(hid_t, hid_t, *const hsize_t, *mut u32, *mut c_void, *mut usize) -> herr_t;
        fn H5Dget_chunk_storage_size(hid_t, *const hsize_t, *mut hsize_t) -> herr_t;
        fn H5FD_core_init() -> hid_t;
        fn H5FD_family_init() -> hid_t;
        fn H5FD_multi_init() -> hid_t;
        fn H5FD_splitter_init() -> hid_t;
        fn H5FD_onion_init() -> hid_t;
        fn H5FD_direct_init() -> hid_t;
        fn H5FD_subfiling_init() -> hid_t;
        fn H5FD_ioc_init() -> hid_t;
        fn H5FD_mirror_init() -> hid_t;
        fn H5Pget_fapl_core(hid_t, *mut usize, *mut bool) -> herr_t;
        fn H5Pget_file_image(hid_t, *mut *mut c_void, *mut usize) -> herr_t;
        fn H5Fis_accessible(*const c_char, hid_t) -> htri_t;
        fn H5Fdelete(*const c_char, hid_t) -> herr_t;
        fn H5I_object(hid_t) -> *mut c_void;
        fn H5I_subst(hid_t, *const c_void) -> *mut c_void;
        fn H5FD_sec2_init() -> hid_t;
        fn H5FD_stdio_init() -> hid_t;
        fn H5FD_log_init() -> hid_t;
        fn H5Rcreate_region(hid_t, *const c_char, hid_t, hid_t, *mut c_void) -> herr_t;
        fn H5Rcreate_object(hid_t, *const c_char, hid_t, *mut c_void) -> herr_t;
        fn H5FD_mpio_init() -> hid_t;
        fn H5Pget_fapl_mpio(hid_t, *mut usize, *mut usize) -> herr_t;
        fn H5Pget_dxpl_mpio(hid_t, *mut c_int) -> herr_t;
        fn H5VLstart_lib_state() -> herr_t;
        fn H5VLfinish_lib_state() -> herr_t;
        fn H5VLopen_lib_context(*mut *mut c_void) -> herr_t;
        fn H5VLclose_lib_context(*mut c_void) -> herr_t;
        fn H5I_inc_ref(hid_t, bool) -> c_int;
        fn H5L_find_class(c_int) -> *const H5L_class_t;
        fn H5Ecreate_stack() -> hid_t;
    }
    data {
        H5VL_NATIVE_g H5FD_SEC2_id_g H5FD_STDIO_id_g H5FD_LOG_id_g H5FD_MPIO_id_g
        H5FD_CORE_id_g H5FD_FAMILY_id_g H5FD_MULTI_id_g H5FD_SPLITTER_id_g H5FD_ONION_id_g H5FD_DIRECT_id_g
        H5FD_SUBFILING_id_g H5FD_IOC_id_g H5FD_MIRROR_id_g
        H5P_CLS_FILE_CREATE_ID_g H5P_CLS_FILE_ACCESS_ID_g H5P_CLS_DATASET_CREATE_ID_g H5P_CLS_DATASET_ACCESS_ID_g
        H5P_CLS_DATASET_XFER_ID_g H5P_CLS_GROUP_CREATE_ID_g H5P_CLS_GROUP_ACCESS_ID_g H5P_CLS_DATATYPE_CREATE_ID_g
        H5P_CLS_LINK_CREATE_ID_g H5P_CLS_LINK_ACCESS_ID_g H5P_CLS_ATTRIBUTE_CREATE_ID_g
        H5P_CLS_OBJECT_CREATE_ID_g H5P_CLS_MAP_CREATE_ID_g H5P_CLS_MAP_ACCESS_ID_g
        H5P_LST_LINK_ACCESS_ID_g H5P_LST_DATASET_XFER_ID_g H5P_LST_LINK_CREATE_ID_g H5P_LST_DATASET_CREATE_ID_g
        H5P_LST_DATASET_ACCESS_ID_g H5P_LST_GROUP_CREATE_ID_g
        H5T_NATIVE_UCHAR_g H5T_NATIVE_UINT8_g H5T_NATIVE_UINT64_g H5T_NATIVE_INT_g H5T_NATIVE_OPAQUE_g H5T_C_S1_g
        H5T_STD_REF_OBJ_g H5T_STD_REF_DSETREG_g H5T_STD_REF_g
        H5E_ERR_CLS_g H5E_VOL_g H5E_FILE_g H5E_DATASET_g H5E_SYM_g H5E_LINK_g H5E_ATTR_g H5E_DATATYPE_g
        H5E_DATASPACE_g H5E_PLINE_g H5E_PLIST_g H5E_REFERENCE_g H5E_OHDR_g H5E_IO_g H5E_ARGS_g
        H5E_NOTFOUND_g H5E_EXISTS_g H5E_BADVALUE_g H5E_BADTYPE_g H5E_BADRANGE_g H5E_UNSUPPORTED_g H5E_CANTOPENFILE_g
        H5E_CANTOPENOBJ_g H5E_CANTCREATE_g H5E_FILEEXISTS_g H5E_FILEOPEN_g H5E_NOTHDF5_g H5E_NOSPACE_g H5E_READERROR_g
        H5E_WRITEERROR_g H5E_CANTGET_g H5E_CANTSET_g H5E_CANTINIT_g H5E_CANTDELETE_g H5E_SEEKERROR_g H5E_CANTCONVERT_g
        H5E_NOFILTER_g H5E_CANTFILTER_g H5E_CANTALLOC_g H5E_CANTREMOVE_g H5E_CANTINSERT_g
        H5E_NLINKS_g H5E_TRAVERSE_g H5E_BADFILE_g H5E_TRUNCATED_g H5E_SYSTEM_g H5E_PATH_g H5E_CANTCLOSEFILE_g
        H5E_CANTENCODE_g H5E_CANTDECODE_g H5E_INTERNAL_g H5E_RESOURCE_g H5E_NOTREGISTERED_g
    }
}
