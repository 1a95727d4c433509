#include "tessera/core/streaming.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace tessera {

#if defined(__AVX__)

namespace {

constexpr std::size_t line = 64, page = 4096;
/// Pages that are copied side by side: one page after the other has the prefetcher start again
/// at every page. 8 are no faster than 4 (docs/reference/performance.md, "Checkpoints").
constexpr std::size_t pages_at_once = 4;

/// One cache line. @pre @p to is aligned to 32 bytes
void stream_line(std::byte* to, std::byte const* from) {
  __m256i const low = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
  __m256i const high = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + line / 2));
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), low);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to + line / 2), high);
}

}  // namespace

void stream_bytes(void* destination, void const* source, std::size_t bytes) {
  if (bytes == 0) return;  // the pointers may be null
  auto* const to = static_cast<std::byte*>(destination);
  auto const* const from = static_cast<std::byte const*>(source);
  std::size_t i = std::min(bytes, (line - reinterpret_cast<std::uintptr_t>(to) % line) % line);
  std::memcpy(to, from, i);
  for (; i + pages_at_once * page <= bytes; i += pages_at_once * page)
    for (std::size_t k = i; k < i + page; k += line)
      for (std::size_t p = 0; p < pages_at_once; ++p)
        stream_line(to + k + p * page, from + k + p * page);
  for (; i + line <= bytes; i += line) stream_line(to + i, from + i);
  std::memcpy(to + i, from + i, bytes - i);
}
void finish_streaming() { _mm_sfence(); }

#else

void stream_bytes(void* to, void const* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void finish_streaming() {}

#endif

}  // namespace tessera
