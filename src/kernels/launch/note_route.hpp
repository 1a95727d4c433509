#pragma once
/// Counts the ways in which kernels::used_routes() computations were done.

namespace tessera::kernels::detail {

/// Both texts are literals. Thread-safe; some tens of nanoseconds.
void note_route(char const* computation, char const* route);

}  // namespace tessera::kernels::detail
