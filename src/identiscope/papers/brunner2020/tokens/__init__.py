"""The part of the paper on tokens: can a hidden embedding be traced to its token?"""
