// Unaligned accesses of 1 to 64 bytes, shared by the functions of this directory.
//
// These functions run as guest code: they are linked into artifacts, touch nothing but their arguments, and may fault
// on guest memory at any access. The build checks that none of them calls anything, itself included.
#pragma once

typedef __SIZE_TYPE__ size_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef unsigned char u8;
typedef __UINT16_TYPE__ u16 __attribute__((aligned(1), may_alias));
typedef __UINT32_TYPE__ u32 __attribute__((aligned(1), may_alias));
typedef __UINT64_TYPE__ u64 __attribute__((aligned(1), may_alias));
typedef u8 v16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef u8 v32 __attribute__((vector_size(32), aligned(1), may_alias));
typedef u8 v64 __attribute__((vector_size(64), aligned(1), may_alias));

#define LOAD(type, at) (*(const type *)(at))
#define STORE(type, at, value) (*(type *)(at) = (value))

// The widest vector that one register holds, as an aligned type too: loops store to aligned addresses.
#ifdef __AVX2__
typedef v32 wide;
typedef u8 wide_aligned __attribute__((vector_size(32), may_alias));
#else
typedef v16 wide;
typedef u8 wide_aligned __attribute__((vector_size(16), may_alias));
#endif
#define WIDE sizeof(wide)
