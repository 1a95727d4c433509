#include "families/family.hpp"

#include "family_suite.hpp"

namespace {

using namespace tessera;

TESSERA_FAMILY_SUITE(Starcoder2, "starcoder2")

}  // namespace
