#pragma once
/// A rank that is alive and has stopped taking part.

#include "tessera/core/error.hpp"

namespace tessera::comm {

/// The rank has an error of its own, which it is about to report, or it shuts down.
class PeerStoppedError : public PeerLostError {
 public:
  using PeerLostError::PeerLostError;
};

}  // namespace tessera::comm
