#pragma once
/// A disk that fails on demand, for programs linked with tessera_faults. Rules: faults.cpp.

extern "C" {
void tessera_set_faults(char const* rules);
long tessera_faults_met();
}
