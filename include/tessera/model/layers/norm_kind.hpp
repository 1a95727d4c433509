#pragma once
/// The kinds of normalization.

namespace tessera::model {

enum class NormKind {
  layer,  ///< layer normalization with gamma and beta
  rms     ///< root mean square normalization with gamma only
};

}  // namespace tessera::model
