#pragma once
/// Copies to memory past the caches, by non-temporal stores. They do not read the lines that they
/// overwrite: a copy moves 2 bytes per byte and not 3.

#include <cstddef>

namespace tessera {

/// Any alignment; the two do not overlap. Other threads see the bytes after finish_streaming().
void stream_bytes(void* to, void const* from, std::size_t bytes);

/// Non-temporal stores are weakly ordered: makes those of this thread visible before its later
/// stores.
void finish_streaming();

}  // namespace tessera
